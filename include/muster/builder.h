// The interface by which a program declares models, optimizers, tables, data sets and metrics in
// build().
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

// An embedding table. A row is created by the first update of its key. See docs/embeddings.md.
struct EmbeddingOptions {
  int64_t width = 16;  // Elements of a row.
  // The distribution of a new row: "zeros", or {"name": "uniform" | "normal" | "constant", "scale":
  // s}. "uniform" draws from [-s, s), "normal" has standard deviation s, "constant" is s. The
  // initial value of a row is a function of (seed, table, key).
  Json initializer = {{"name", "uniform"}, {"scale", 0.05}};
  // The program's default optimizer and learning rate for this table. The syntax is that of the job
  // file, and "rowwise_adagrad" is allowed too. clipvalue and clipnorm apply to the gradient of one
  // row. A null learning rate means the optimizer's default.
  Json optimizer = "adagrad";
  Json learning_rate = nullptr;
  // The type of the stored rows: "float32", "float16" or "bfloat16". Optimizer slots are float32.
  std::string dtype = "float32";
  // Limits of the whole table, in rows and in bytes (rows and optimizer slots together). 0 means no
  // limit. Above a limit, rows are evicted with their slots. `eviction` selects the order: "oldest"
  // (created first), "least_recent" (not updated for the longest time) or "least_frequent" (fewest
  // updates).
  int64_t max_rows = 0, max_bytes = 0;
  std::string eviction = "least_recent";
  // A row is created by the n-th update of its key. Earlier updates of that key have no effect.
  int64_t admit_after = 1;
};

struct DatasetOptions {
  // Drops the short last batch of an epoch. The job's drop_remainder overrides this.
  bool drop_remainder = false;
};

// Options of a named data set, which a program reads by Loop::next(handle, &batch).
struct NamedDatasetOptions {
  int64_t batch_size = 0;  // 0: the job's global batch size.
  // True: each replica gets its slice of a batch. False: each replica gets the whole batch.
  bool distributed = true;
  bool drop_remainder = false;  // Drops the short last batch of a pass.
  // Starts the next pass without signalling the end of the previous one.
  bool repeat = false;
};

// The behaviour of a module's buffer across replicas.
enum class BufferMode {
  // The example-weighted mean over all replicas after each step. The default for floating-point
  // buffers that steps change.
  kMean,
  // Equal on all replicas and never reduced: constant tables, and values that every replica
  // computes alike. Compared across replicas at the end of each epoch. The default for buffers that
  // no step changes and for buffers that are not floating-point.
  kSame,
  // Separate on each replica and never averaged. Checkpoints save and restore it for each replica.
  // Used for image pools, queues, and counters of what one replica has seen.
  kPerReplica
};

// Options for loading initial weights. `prefix` and then `rename` are applied to the name of each
// tensor in the file. The tensor is loaded into the parameter or buffer of the resulting name.
struct LoadOptions {
  // Requires every parameter and buffer to be in the file, and every tensor of the file in the
  // model.
  bool strict = true;
  // Regular expressions (ECMAScript) and their replacements ("$1" is a group). Every expression is
  // applied, in alphabetical order.
  std::map<std::string, std::string> rename;
  // Only tensors whose names begin with the prefix are loaded. The prefix is removed from the name.
  std::string prefix;
};

class BuilderImpl;

// Records the declarations of a program's build(). Names are unique and made of letters, digits,
// '_' and '-'.
class Builder {
 public:
  explicit Builder(BuilderImpl* impl) : impl_(impl) {}
  // The job's program_args. Read them with args().Read(...). After build() returns, a key that it
  // did not read is refused.
  JsonObject& args();
  uint64_t seed() const;
  at::Device device() const;

  // Moves the module to the device and broadcasts rank 0's initial state to all replicas. The
  // default generator is seeded with the job's seed before build(), so every replica draws the same
  // initial weights anyway. Parameters and buffers must be registered before build() returns. A
  // later registration is refused when it is detected.
  void model(const std::string& name, std::shared_ptr<torch::nn::Module> module);
  // Starts a run with the weights of a safetensors file, written by Python or taken from a
  // checkpoint. `path` is one file, an index of several ("...safetensors.index.json"), or a folder
  // that holds one of these. Types are float16, bfloat16, float32 and float64. Only the chief reads
  // the file, before the first step of a run. It is not read when the run resumes from its own
  // checkpoint. The job's "load" for this model replaces it. A relative path is relative to the
  // chief's working directory.
  void load(const std::string& model, const std::string& path, LoadOptions options = {});
  // Sets the mode of the buffers whose names ("<model>.<buffer>") match the pattern. '*' matches
  // any text and '?' any character. The first matching pattern wins. A pattern that matches no
  // buffer is refused.
  void buffer(const std::string& pattern, BufferMode mode);
  // Declares an optimizer for those parameters of the models that require a gradient. A program may
  // change requires_grad between steps. Frozen parameters keep their values and slots. A parameter
  // that was frozen in build() gets its slots in the first step in which it is not frozen.
  // `optimizer` and `learning_rate` are the program's defaults, in the syntax of the job file
  // (docs/job_file.md). The job's own values replace them. A job addresses an optimizer by name
  // where a program has several.
  OptimizerHandle optimizer(const std::string& name, const std::vector<std::string>& models,
                            Json optimizer, Json learning_rate);
  // Declares an embedding table, whose rows are looked up by key. Every minimize() trains the rows
  // that the step looked up. The job's "optimizer" and "learning_rate" replace those of the
  // options, addressed by the table's name. The job's "embeddings" replaces the other options.
  EmbeddingHandle embedding(const std::string& name, EmbeddingOptions options = {});
  // `make` is called once per process. A split without a dataset is skipped. Training requires a
  // dataset for Split::kTrain.
  void dataset(Split split, std::function<absl::StatusOr<data::DatasetPtr>()> make,
               DatasetOptions options = {});
  // Returns the columns of the job's own data for this split, in the order of a batch's components.
  // The job's data replaces the program's. Returns an empty vector if the job has none. Reads only
  // the headers of the files where the format allows it. Throws if the files are invalid.
  std::vector<data::Column> data_columns(Split split);
  // Returns the first `count` examples of the job's own data for this split (or all, if there are
  // fewer) as a batch in host memory. Use them to show the progress of training. Returns an empty
  // batch if the job has no data for this split.
  data::Batch data_examples(Split split, int64_t count);
  // Declares a further data set for a program that owns its loop. Synchronous training only.
  DatasetHandle dataset(const std::string& name,
                        std::function<absl::StatusOr<data::DatasetPtr>()> make,
                        NamedDatasetOptions options = {});
  // Makes the built-in loop run its test pass after every `epochs` epochs, in addition to the end
  // of training.
  void test_every(int64_t epochs);
  MetricHandle metric(const std::string& name, std::shared_ptr<const Metric> metric);
  // Registers a schedule of the program's own. The job and this program's optimizers and tables use
  // it by name as a learning rate: {"name": name, ...}. Warm-up and "scale_with_replicas" apply to
  // it as to built-in schedules.
  void schedule(const std::string& name, ScheduleFactory make);
  // Registers a callback that observes and controls training. It runs at its position in the job's
  // "callbacks" if they list its name, otherwise before all of them. It replaces a built-in
  // callback of the same name.
  void callback(const std::string& name, std::shared_ptr<Callback> callback);
  // Registers a callback that runs only if the job's "callbacks" list its name. `make` then creates
  // it from the keys that it reads.
  void callback(const std::string& name,
                std::function<std::shared_ptr<Callback>(JsonObject& keys)> make);

 private:
  BuilderImpl* impl_;
};

}  // namespace muster
