// In build(), a program declares its models, optimizers, embedding tables, data sets and metrics to
// a Builder. A replica is one device's copy of the program. A split is the training, validation or
// test data. The job is the content of the JSON job file (docs/job_file.md). Slots are an
// optimizer's state for each parameter, such as momentum.
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

// Options of an embedding table, which maps integer keys to rows of numbers (docs/embeddings.md).
// By default, the first update of a key creates the key's row.
struct EmbeddingOptions {
  int64_t width = 16;  // The number of elements in a row.
  // The distribution of the values of a new row: "zeros", or {"name": "uniform" | "normal" |
  // "constant", "scale": s}. "uniform" draws from [-s, s), "normal" has mean 0 and standard
  // deviation s, and "constant" sets every value to s. The initial value of a row depends only on
  // the job's seed, the table and the key.
  Json initializer = {{"name", "uniform"}, {"scale", 0.05}};
  // The program's default optimizer and learning rate for this table, in the syntax of the job
  // file. Tables have one more optimizer, "rowwise_adagrad". clipvalue and clipnorm clip the
  // gradient of each row separately. A null learning rate selects the optimizer's default rate.
  Json optimizer = "adagrad";
  Json learning_rate = nullptr;
  // The type of the stored rows: "float32", "float16" or "bfloat16". Optimizer slots are float32.
  std::string dtype = "float32";
  // Limits of the whole table. max_rows limits the number of rows. max_bytes limits the bytes of
  // rows and slots together. 0 means no limit. A table above a limit deletes (evicts) rows with
  // their slots. `eviction` selects which rows are deleted first: "oldest" (created first),
  // "least_recent" (not updated for the longest time) or "least_frequent" (fewest updates).
  int64_t max_rows = 0, max_bytes = 0;
  std::string eviction = "least_recent";
  // The number of the update that creates a key's row. Earlier updates of the key have no effect.
  // With 1, the first update creates the row.
  int64_t admit_after = 1;
};

struct DatasetOptions {
  // If true, an incomplete last batch of an epoch is dropped. The job's "drop_remainder" overrides
  // this value.
  bool drop_remainder = false;
};

// Options of a named data set. A program reads such a data set with Loop::next(handle, &batch).
struct NamedDatasetOptions {
  int64_t batch_size = 0;  // 0 selects the job's global batch size.
  // If true, each replica gets its slice of a batch. If false, each replica gets the whole batch.
  bool distributed = true;
  // If true, an incomplete last batch of a pass is dropped. A pass reads the data set once.
  bool drop_remainder = false;
  // If true, next() starts the next pass at the end of a pass, and never returns false.
  bool repeat = false;
};

// How the replicas keep a module's buffer consistent.
enum class BufferMode {
  // After each step, the buffer becomes the mean over all replicas, weighted by their numbers of
  // examples. This is the default for floating-point buffers that steps change.
  kMean,
  // The program keeps the buffer equal on all replicas, for example a constant table. Muster does
  // not average the buffer. At the end of each epoch, Muster checks that the replicas have equal
  // values. This is the default for buffers that no step changes and for buffers that are not
  // floating-point.
  kSame,
  // Each replica has its own value, which is never averaged. Checkpoints save and restore the value
  // of each replica. Use this mode for image pools, queues, and counters of one replica's examples.
  kPerReplica
};

// Options for loading initial weights from a file. First `prefix` and then `rename` change the name
// of each tensor in the file. The tensor is loaded into the parameter or buffer with the resulting
// name.
struct LoadOptions {
  // If true, the tensors of the file must be exactly the model's parameters and buffers.
  bool strict = true;
  // Maps regular expressions (ECMAScript) to replacements ("$1" is the first group). All
  // expressions are applied, in alphabetical order.
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
  // Returns the job's "program_args". Call args().Read(...) to read them. A key that build() does
  // not read is a ConfigurationError.
  JsonObject& args();
  uint64_t seed() const;
  at::Device device() const;

  // Declares a model. Muster moves the module to the device, and broadcasts the initial state of
  // the first replica to all replicas. Before build(), Muster seeds the default generator with the
  // job's seed, so all replicas draw equal initial weights even without the broadcast. Register all
  // parameters and buffers before build() returns. If Muster detects a later registration, the job
  // ends with an error.
  void model(const std::string& name, std::shared_ptr<torch::nn::Module> module);
  // Makes a run start with the weights of a safetensors file. Python may have written the file, or
  // the file may be part of a checkpoint. `path` is one file, an index of several files
  // ("...safetensors.index.json"), or a folder with such a file or index. The tensors may be
  // float16, bfloat16, float32 or float64. Only the chief (the task that leads the job) reads the
  // file, before the first step of a run. A run that resumes from its own checkpoint does not read
  // the file. If the job's "load" names this model, the job's entry replaces this call. A relative
  // path is relative to the chief's working directory.
  void load(const std::string& model, const std::string& path, LoadOptions options = {});
  // Sets the mode of the buffers whose names ("<model>.<buffer>") match the pattern. '*' matches
  // any text, and '?' matches any character. If several patterns match a buffer, the first call
  // wins. A pattern that matches no buffer is an error.
  void buffer(const std::string& pattern, BufferMode mode);
  // Declares an optimizer for the parameters of `models` that require a gradient. A program may
  // change requires_grad between steps. A frozen parameter (requires_grad is false) keeps its value
  // and slots. A parameter that is frozen in build() gets its slots in the first step that trains
  // the parameter. `optimizer` and `learning_rate` are the program's defaults, in the syntax of the
  // job file (docs/job_file.md). The job's values replace the defaults. If the program has several
  // optimizers, the job gives one value for each optimizer's name.
  OptimizerHandle optimizer(const std::string& name, const std::vector<std::string>& models,
                            Json optimizer, Json learning_rate);
  // Declares an embedding table. Every minimize() trains the rows that the step has looked up. The
  // job's "optimizer" and "learning_rate" may have an entry with the table's name. This entry
  // replaces the value in `options`. The job's "embeddings" replaces the other options.
  EmbeddingHandle embedding(const std::string& name, EmbeddingOptions options = {});
  // Declares the data set of a split. Muster calls `make` once per process. The built-in loop skips
  // the passes of a split without a data set. Training requires a data set for Split::kTrain.
  void dataset(Split split, std::function<absl::StatusOr<data::DatasetPtr>()> make,
               DatasetOptions options = {});
  // Returns the columns of this split in the job's "data", in the order of a batch's components.
  // Returns an empty vector if the job has no "data". If the job has "data", the job's data
  // replaces the program's data sets. Reads only the headers of the files if the format allows
  // this. Throws if the files are invalid.
  std::vector<data::Column> data_columns(Split split);
  // Returns the first `count` examples of this split in the job's "data", as a batch in host
  // memory. If the split is shorter, returns all its examples. Returns an empty batch if the job
  // has no "data" for this split. A program can use these examples to show the progress of
  // training.
  data::Batch data_examples(Split split, int64_t count);
  // Declares a named data set, in addition to the data sets of the splits. Only a program that
  // overrides Program::run() can read a named data set. Not available with parameter servers.
  DatasetHandle dataset(const std::string& name,
                        std::function<absl::StatusOr<data::DatasetPtr>()> make,
                        NamedDatasetOptions options = {});
  // Makes the built-in loop run a test pass after every `epochs` epochs and at the end of training.
  // Without this call, there is only the test pass at the end of training.
  void test_every(int64_t epochs);
  MetricHandle metric(const std::string& name, std::shared_ptr<const Metric> metric);
  // Registers a learning-rate schedule of the program. A learning rate {"name": name, ...} of the
  // job, of an optimizer or of a table then selects the schedule. The keys for warm-up and
  // "scale_with_replicas" work as for built-in schedules.
  void schedule(const std::string& name, ScheduleFactory make);
  // Registers a callback that observes and controls training. If the list "callbacks" of the job
  // contains the name, the callback runs at that position of the list. Otherwise, the callback
  // runs before all callbacks of the list. The callback replaces a built-in callback of the same
  // name.
  void callback(const std::string& name, std::shared_ptr<Callback> callback);
  // Registers a callback that runs only if the list "callbacks" of the job contains the name. In
  // that case, `make` creates the callback from the keys of the job's entry.
  void callback(const std::string& name,
                std::function<std::shared_ptr<Callback>(JsonObject& keys)> make);

 private:
  BuilderImpl* impl_;
};

}  // namespace muster
