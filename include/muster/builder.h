// What a program declares in build(): models, optimizers, tables, data sets and metrics.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/data.h"
#include "muster/handles.h"
#include "muster/json.h"
#include "muster/metrics.h"

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
  // The program's defaults, as an optimizer's. null learning rate: the optimizer's own.
  Json optimizer = "adagrad";
  Json learning_rate = nullptr;
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
  // replica draws the same initial weights anyway.
  void model(const std::string& name, std::shared_ptr<torch::nn::Module> module);
  // An optimizer for the parameters of those models. `optimizer` and `learning_rate` are the
  // program's defaults (job file syntax, docs/job_file.md); the job's own replace them, by the
  // optimizer's name where a program has several.
  OptimizerHandle optimizer(const std::string& name, const std::vector<std::string>& models,
                            Json optimizer, Json learning_rate);
  // A table whose rows are looked up by key; every minimize() trains them. The job's "optimizer"
  // and "learning_rate" replace the options' as they do an optimizer's, by the table's name.
  EmbeddingHandle embedding(const std::string& name, EmbeddingOptions options = {});
  // `make` is called once a process. A split without a dataset is left out; training needs one.
  void dataset(Split split, std::function<absl::StatusOr<data::DatasetPtr>()> make,
               DatasetOptions options = {});
  // Where the job has data of its own for this split, which then replaces the program's: its
  // columns, in the order of a batch's components. Empty where it has none. Reads no more of the
  // files than their headers, where the format allows it; throws what is wrong with them.
  std::vector<data::Column> data_columns(Split split);
  // Another data set, which the program's own loop reads (synchronous training alone).
  DatasetHandle dataset(const std::string& name,
                        std::function<absl::StatusOr<data::DatasetPtr>()> make,
                        NamedDatasetOptions options = {});
  // The built-in loop makes its test pass after every so many epochs, besides at the end of
  // training.
  void test_every(int64_t epochs);
  MetricHandle metric(const std::string& name, std::shared_ptr<const Metric> metric);

 private:
  BuilderImpl* impl_;
};

}  // namespace muster
