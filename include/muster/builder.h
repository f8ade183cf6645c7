// In build(), a program declares its models, optimizers, tables, data sets and metrics to a
// Builder.
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

// Options of an embedding table, which maps keys to rows (docs/embeddings.md). By default, the
// first update of a key creates the key's row.
struct EmbeddingOptions {
  int64_t width = 16;  // The number of elements in a row.
  // The distribution of the values of a new row: "zeros", or {"name": "uniform" | "normal" |
  // "constant", "scale": s}. "uniform" draws from [-s, s), "normal" has mean 0 and standard
  // deviation s, and "constant" sets every value to s. The initial value of a row is a function of
  // (seed, table, key).
  Json initializer = {{"name", "uniform"}, {"scale", 0.05}};
  // The program's default optimizer and learning rate for this table. The syntax is that of the job
  // file. "rowwise_adagrad" is also allowed. clipvalue and clipnorm apply to the gradient of one
  // row. A null learning rate selects the optimizer's default.
  Json optimizer = "adagrad";
  Json learning_rate = nullptr;
  // The type of the stored rows: "float32", "float16" or "bfloat16". Optimizer slots are float32.
  std::string dtype = "float32";
  // Limits of the whole table: the number of rows, and the bytes of rows and optimizer slots
  // together. 0 means no limit. When the table exceeds a limit, it evicts rows and their slots.
  // `eviction` selects the order: "oldest" (created first), "least_recent" (not updated for the
  // longest time) or "least_frequent" (fewest updates).
  int64_t max_rows = 0, max_bytes = 0;
  std::string eviction = "least_recent";
  // The update of a key with this number, from 1, creates the key's row. Earlier updates of the key
  // have no effect.
  int64_t admit_after = 1;
};

struct DatasetOptions {
  // Drops the short last batch of an epoch. The job's drop_remainder overrides this.
  bool drop_remainder = false;
};

// Options of a named data set. A program reads such a data set with Loop::next(handle, &batch).
struct NamedDatasetOptions {
  int64_t batch_size = 0;  // 0 selects the job's global batch size.
  // If true, each replica gets its slice of a batch. If false, each replica gets the whole batch.
  bool distributed = true;
  bool drop_remainder = false;  // Drops the short last batch of a pass.
  // If true, next() does not report the end of a pass and starts the next pass.
  bool repeat = false;
};

// How the replicas keep a module's buffer consistent.
enum class BufferMode {
  // After each step, the buffer becomes the mean over all replicas, weighted by their numbers of
  // examples. This is the default for floating-point buffers that steps change.
  kMean,
  // The buffer has the same value on all replicas without a reduction, such as a constant table.
  // The end of each epoch compares the replicas. This is the default for buffers that no step
  // changes and for buffers that are not floating-point.
  kSame,
  // Each replica has its own value, which is never averaged. Checkpoints save and restore the value
  // of each replica. Use this mode for image pools, queues, and counters of one replica's examples.
  kPerReplica
};

// Options for loading initial weights. `prefix` and `rename`, in this order, change the name of
// each tensor in the file. The tensor is loaded into the parameter or buffer with the resulting
// name.
struct LoadOptions {
  // If true, the file must have every parameter and buffer of the model, and no other tensor.
  bool strict = true;
  // Maps regular expressions (ECMAScript) to replacements ("$1" is a group). All expressions are
  // applied, in alphabetical order.
  std::map<std::string, std::string> rename;
  // Only tensors with this prefix in their names are loaded. The prefix is removed from the name.
  std::string prefix;
};

class BuilderImpl;

// Records the declarations of a program's build(). Names must be unique and consist of letters,
// digits, '_' and '-'.
class Builder {
 public:
  explicit Builder(BuilderImpl* impl) : impl_(impl) {}
  // The job's program_args. Read them with args().Read(...). A key that build() did not read is a
  // ConfigurationError.
  JsonObject& args();
  uint64_t seed() const;
  at::Device device() const;

  // Moves the module to the device and broadcasts rank 0's initial state to all replicas. Before
  // build(), the default generator is seeded with the job's seed, so all replicas draw equal
  // initial weights even without the broadcast. Parameters and buffers must be registered before
  // build() returns. A later registration is an error when it is detected.
  void model(const std::string& name, std::shared_ptr<torch::nn::Module> module);
  // Starts a run with the weights of a safetensors file, written by Python or taken from a
  // checkpoint. `path` is one file, an index of several files ("...safetensors.index.json"), or a
  // folder with such a file or index. The tensors may be float16, bfloat16, float32 or float64.
  // Only the chief reads the file, before the first step of a run. A run that resumes from its own
  // checkpoint does not read the file. The job's "load" for this model replaces this call. A
  // relative path is relative to the chief's working directory.
  void load(const std::string& model, const std::string& path, LoadOptions options = {});
  // Sets the mode of the buffers whose names ("<model>.<buffer>") match the pattern. '*' matches
  // any text, and '?' matches any character. If several patterns match a buffer, the first call
  // wins. A pattern that matches no buffer is an error.
  void buffer(const std::string& pattern, BufferMode mode);
  // Declares an optimizer for the models' parameters that require a gradient. A program may change
  // requires_grad between steps. Frozen parameters keep their values and slots. A parameter that
  // was frozen in build() gets its slots in the first step that trains it. `optimizer` and
  // `learning_rate` are the program's defaults, in the syntax of the job file (docs/job_file.md).
  // The job's values replace the defaults. If a program has several optimizers, a job refers to
  // each by its name.
  OptimizerHandle optimizer(const std::string& name, const std::vector<std::string>& models,
                            Json optimizer, Json learning_rate);
  // Declares an embedding table, which maps keys to rows. Every minimize() trains the rows that the
  // step looked up. The job's "optimizer" and "learning_rate", under the table's name, replace
  // those of the options. The job's "embeddings" replaces the other options.
  EmbeddingHandle embedding(const std::string& name, EmbeddingOptions options = {});
  // Declares the dataset of a split. `make` is called once per process. A split without a dataset
  // is skipped. Training requires a dataset for Split::kTrain.
  void dataset(Split split, std::function<absl::StatusOr<data::DatasetPtr>()> make,
               DatasetOptions options = {});
  // Returns the columns of the job's own data for this split, in the order of a batch's components.
  // Returns an empty vector if the job has no data. The job's data replaces the program's. Reads
  // only the headers of the files if the format allows this. Throws if the files are invalid.
  std::vector<data::Column> data_columns(Split split);
  // Returns the first `count` examples (or fewer, if the data is shorter) of the job's own data for
  // this split as a batch in host memory. A program can show the progress of training on these
  // examples. Returns an empty batch if the job has no data for this split.
  data::Batch data_examples(Split split, int64_t count);
  // Declares a further data set for a program that owns its loop. Not available with parameter
  // servers.
  DatasetHandle dataset(const std::string& name,
                        std::function<absl::StatusOr<data::DatasetPtr>()> make,
                        NamedDatasetOptions options = {});
  // Makes the built-in loop run its test pass after every `epochs` epochs, and not only at the end
  // of training.
  void test_every(int64_t epochs);
  MetricHandle metric(const std::string& name, std::shared_ptr<const Metric> metric);
  // Registers a schedule of the program. The job, and the program's optimizers and tables, use the
  // schedule as a learning rate: {"name": name, ...}. Warm-up and "scale_with_replicas" work as for
  // built-in schedules.
  void schedule(const std::string& name, ScheduleFactory make);
  // Registers a callback that observes and controls training. If the job's "callbacks" list the
  // name, the callback runs at that position. Otherwise it runs before all callbacks of the list.
  // The callback replaces a built-in callback of the same name.
  void callback(const std::string& name, std::shared_ptr<Callback> callback);
  // Registers a callback that runs only if the job's "callbacks" list its name. `make` then creates
  // the callback from its keys in the job.
  void callback(const std::string& name,
                std::function<std::shared_ptr<Callback>(JsonObject& keys)> make);

 private:
  BuilderImpl* impl_;
};

}  // namespace muster
