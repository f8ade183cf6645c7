// What a program declares in build(): models, optimizers, tables, data sets and metrics.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/callback.h"
#include "muster/data.h"
#include "muster/handles.h"
#include "muster/json.h"
#include "muster/metrics.h"
#include "muster/schedule.h"

namespace torch::nn {
class Module;
}

namespace muster {

// A table of rows by key, made as they are first updated: docs/embeddings.md.
struct EmbeddingOptions {
  int64_t width = 16;  // of a row
  // "zeros", or {"name": "uniform" | "normal" | "constant", "scale": s}: in [-s, s), with standard
  // deviation s, or s itself. What a row begins with is a function of (seed, table, key).
  Json initializer = {{"name", "uniform"}, {"scale", 0.05}};
  // The program's defaults, as an optimizer's, or "rowwise_adagrad"; clipvalue and clipnorm are of
  // one row's gradient. null learning rate: the optimizer's own.
  Json optimizer = "adagrad";
  Json learning_rate = nullptr;
  // How rows are kept: "float32", "float16" or "bfloat16"; what the optimizer remembers of them is
  // float32.
  std::string dtype = "float32";
  // Rows that the whole table may have, or bytes (of rows with what the optimizer remembers). Above
  // it rows go, with all that belongs to them, in this order: "oldest" (made first),
  // "least_recent" (updated the longest ago), "least_frequent" (updated the fewest times). 0: no
  // cap.
  int64_t max_rows = 0, max_bytes = 0;
  std::string eviction = "least_recent";
  // A row is made in the n-th update of its key; the ones before change nothing.
  int64_t admit_after = 1;
};

struct DatasetOptions {
  bool drop_remainder =
      false;  // the short last batch of an epoch; the job's drop_remainder has the last word
};

// Of a data set besides the splits, for Loop::next(handle, &batch).
struct NamedDatasetOptions {
  int64_t batch_size = 0;  // 0: the job's global one
  // Each replica gets its slice of a batch; false: each gets all of it.
  bool distributed = true;
  bool drop_remainder = false;  // the short last batch of a pass
  // One pass after another without an end between them.
  bool repeat = false;
};

// How a module's buffer behaves across replicas.
enum class BufferMode {
  // The example-weighted mean over all replicas after each step. Floating-point buffers that steps
  // change are averaged without being declared.
  kMean,
  // Equal on all replicas and never reduced: constant tables, and what every replica computes
  // alike. Compared at the end of each epoch. Buffers that no step changes are taken for it, and
  // all that are not of floating point.
  kSame,
  // Each replica has its own, never averaged, saved and restored by replica: image pools, queues,
  // counters of what this replica has seen.
  kPerReplica
};

// Weights to begin with. A tensor of the file goes to the parameter or buffer of its name, which is
// changed as `prefix` and `rename` say, in this order.
struct LoadOptions {
  // Every parameter and buffer must be in the file, and every tensor of the file in the model.
  bool strict = true;
  // Regular expressions (ECMAScript) and what replaces their matches ("$1" is a group), all of
  // them, in alphabetical order.
  std::map<std::string, std::string> rename;
  // Only tensors whose names begin with it count, and it is taken off.
  std::string prefix;
};

class BuilderImpl;

// What a program's build() declares. Names are unique and made of letters, digits, '_' and '-'.
class Builder {
 public:
  explicit Builder(BuilderImpl* impl) : impl_(impl) {}
  // The job's program_args: read them with args().Read(...). A key that build() did not ask for is
  // refused when it returns.
  JsonObject& args();
  uint64_t seed() const;
  at::Device device() const;

  // Moves the module to the device and makes it equal on all replicas (rank 0's initial state is
  // broadcast). The default generator was seeded with the job's seed before build(), so that every
  // replica draws the same initial weights anyway. What the module registers up to the end of
  // build() belongs to it; what it registers later is refused when it is found.
  void model(const std::string& name, std::shared_ptr<torch::nn::Module> module);
  // Begins a run with the weights of a safetensors file, one that Python wrote or a checkpoint's:
  // float16, bfloat16, float32 or float64, in one file, or in several by their
  // "...safetensors.index.json", or a folder that holds one of these. Read by the chief alone
  // before the first step of a run, not when it goes on from its own checkpoint. The job's "load"
  // of this model replaces it. A relative path is one of the chief's working directory.
  void load(const std::string& model, const std::string& path, LoadOptions options = {});
  // The buffers whose names ("<model>.<buffer>") match the pattern, in which '*' is any text and
  // '?' any character, behave so. The first pattern that matches a buffer wins; one that matches
  // none is refused.
  void buffer(const std::string& pattern, BufferMode mode);
  // An optimizer for the parameters of those models that require a gradient. A program may change
  // requires_grad between steps: what is frozen stays as it is, with its slots, and what was frozen
  // in build() gets its slots in the first step that finds it unfrozen.
  // `optimizer` and `learning_rate` are the program's defaults (job file syntax, docs/job_file.md);
  // the job's own replace them, by the optimizer's name where a program has several.
  OptimizerHandle optimizer(const std::string& name, const std::vector<std::string>& models,
                            Json optimizer, Json learning_rate);
  // A table whose rows are looked up by key; every minimize() trains them. The job's "optimizer"
  // and "learning_rate" replace the options' as they do an optimizer's, by the table's name; its
  // "embeddings" the rest of them.
  EmbeddingHandle embedding(const std::string& name, EmbeddingOptions options = {});
  // `make` is called once a process. A split without a dataset is left out; training needs one.
  void dataset(Split split, std::function<absl::StatusOr<data::DatasetPtr>()> make,
               DatasetOptions options = {});
  // Where the job has data of its own for this split, which then replaces the program's: its
  // columns, in the order of a batch's components. Empty where it has none. Reads no more of the
  // files than their headers, where the format allows it; throws what is wrong with them.
  std::vector<data::Column> data_columns(Split split);
  // The first `count` examples of that data (all, where there are fewer) as a batch in host memory:
  // a few to show how training goes. Empty where the job has none for this split.
  data::Batch data_examples(Split split, int64_t count);
  // Another data set, which the program's own loop reads (synchronous training alone).
  DatasetHandle dataset(const std::string& name,
                        std::function<absl::StatusOr<data::DatasetPtr>()> make,
                        NamedDatasetOptions options = {});
  // The built-in loop makes its test pass after every so many epochs, besides at the end of
  // training.
  void test_every(int64_t epochs);
  MetricHandle metric(const std::string& name, std::shared_ptr<const Metric> metric);
  // A schedule of the program's own, by which the job and this program's optimizers and tables may
  // name their learning rates: {"name": name, ...}. Warm-up and "scale_with_replicas" go with it as
  // with any.
  void schedule(const std::string& name, ScheduleFactory make);
  // Looks at training and steers it. It takes the place in the job's "callbacks" where these name
  // it, and comes before all of them where they do not; one with the name of a built-in callback
  // replaces that.
  void callback(const std::string& name, std::shared_ptr<Callback> callback);
  // One that the job's "callbacks" may name: made then, from the keys that it reads.
  void callback(const std::string& name,
                std::function<std::shared_ptr<Callback>(JsonObject& keys)> make);

 private:
  BuilderImpl* impl_;
};

}  // namespace muster
