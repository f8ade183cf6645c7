// What a user writes: one class with build, train_step and eval_step. The same program runs under
// every strategy and knows nothing of ranks, devices or RPC. Its interface is in LibTorch's own
// snake_case, and errors are exceptions here: whatever a program throws is caught at the edge of
// its step and ends the job with exit code 1 and its message.
//
// One Program object exists for each replica (device); each is used by one thread. Keep models,
// optimizers and metrics in members. A step is a transaction: see Step.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/data/dataset.h"
#include "common/train/metrics.h"

namespace torch::nn {
class Module;
}

namespace muster {

enum class Split { kTrain = 0, kValidation, kTest };
const char* SplitName(Split split);  // "train", "validation", "test"

class BuilderImpl;
class StepImpl;
class EvaluationImpl;
class LoopBackend;

// Handles that build() hands out and steps take. Valid as long as the replica.
struct OptimizerHandle {
  int index = -1;
};
struct MetricHandle {
  int index = -1;
};
struct EmbeddingHandle {
  int index = -1;
};

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
  MetricHandle metric(const std::string& name, std::shared_ptr<const Metric> metric);

 private:
  BuilderImpl* impl_;
};

// One step on one replica: a slice of one global batch, which may be empty (first dimension 0). A
// transaction: what it changes becomes visible when the step commits, after the last reduction, on
// all replicas or on none. With one minimize() a step the update itself is applied at the commit;
// from the first step that calls it twice on, each call applies its update at once (and the first
// such step is run again from its start), and the commit makes them final.
class Step {
 public:
  explicit Step(StepImpl* impl) : impl_(impl) {}

  int64_t number() const;  // n-th step, from 1
  int64_t epoch() const;   // from 0
  int replica() const;
  int num_replicas() const;
  at::Device device() const;
  // Private to this replica, seeded by (seed, step, replica, micro-batch). CPU replicas of one
  // process share LibTorch's default generator, this one they do not.
  at::Generator generator();

  // Rows of a table, float32, [..., width] for integer keys of any shape. The gradients that this
  // step's minimize() calls leave in them are summed by key over the step and over all replicas,
  // and applied as one update of each row when the step commits.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  // Differentiates with respect to the optimizer's parameters (and the rows that were looked up)
  // only, all-reduces the gradients and
  // applies the update. `per_example_loss` has shape [batch]; the examples are summed and divided
  // as the job's loss_reduction says.
  void minimize(OptimizerHandle optimizer, const at::Tensor& per_example_loss);
  // Added to the next minimize(): a loss that depends on the input, shape [batch].
  void add_loss(const at::Tensor& per_example_loss);
  // Added to the next minimize(): a loss on parameters, a scalar, counted once however many
  // replicas there are.
  void regularize(const at::Tensor& scalar_loss);
  // A value for the log and TensorBoard, shape [batch], reduced like a loss. Every replica must
  // report the same names in every step, with an empty batch too. Nested names are written
  // "generator/adversarial".
  void report(const std::string& name, const at::Tensor& per_example_value);
  // Adds the batch to a metric of the epoch.
  void update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target = {});
  // Pictures and distributions for TensorBoard, of the first replica's part of the batch, in every
  // summary.every_steps-th step; in others these calls cost next to nothing. Images have shape
  // [batch, channels, height, width], floating-point from 0 to 1 or bytes, 1, 3 or 4 channels; the
  // first three are shown. A name counts once a step (in its first micro-batch).
  void image(const std::string& name, const at::Tensor& images);
  void histogram(const std::string& name, const at::Tensor& values);
  // Whether they will be shown: where making them is work, ask first.
  bool wants_summary() const;
  // Runs when the step commits, after the updates: constraints on weights and the like. Must not
  // throw.
  void on_commit(std::function<void()> action);

 private:
  StepImpl* impl_;
};

// One batch of a validation or test pass on one replica (may be empty).
class Evaluation {
 public:
  explicit Evaluation(EvaluationImpl* impl) : impl_(impl) {}
  Split split() const;
  at::Device device() const;
  // As Step's.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  // The metric "loss": a mean over all examples.
  void loss(const at::Tensor& per_example_loss);
  void update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target = {});
  // As Step's, in the pass's first batch.
  void image(const std::string& name, const at::Tensor& images);
  void histogram(const std::string& name, const at::Tensor& values);
  bool wants_summary() const;

 private:
  EvaluationImpl* impl_;
};

class PrefetchImpl;
// Where a program tells which rows a batch will want: see Program::prefetch.
class Prefetch {
 public:
  explicit Prefetch(PrefetchImpl* impl) : impl_(impl) {}
  // Keys that train_step will look up, integers of any shape; any number of times for a table.
  void keys(EmbeddingHandle table, const at::Tensor& keys);

 private:
  PrefetchImpl* impl_;
};

// For programs that own their loop. Every replica runs the same loop in its own thread and must
// make the same calls in the same order. A lost peer, or a stop that was asked for during a pass,
// ends the loop by an exception that the program must let pass.
//
// A run that goes on from a checkpoint enters run() anew, with steps() and epoch() as they were:
// derive what to do from them (and from epoch_begins()), not from counters of your own. What the
// program keeps besides models, optimizers and metrics is not saved.
class Loop {
 public:
  explicit Loop(LoopBackend* backend) : backend_(backend) {}

  // The built-in loop: all epochs, with validation after each and the test pass at the end. What
  // Program::run does.
  void fit();

  // The next batch of the training data: this replica's slice, across epochs. False at the end of
  // the job (epochs, max_steps, or a requested stop).
  bool next(data::Batch* batch);
  // One step over the last next()'s batch.
  void step(const std::function<void(Step&, const data::Batch&)>& body);
  // A pass over a split with Program::eval_step: its metrics, over all replicas. A stop that is
  // requested meanwhile (or was before) ends it, and with it the loop.
  std::map<std::string, double> evaluate(Split split);

  // Over all replicas of the job. `reduce` needs equal shapes, `gather` concatenates along the
  // first dimension, which may differ; both give every replica the same result.
  at::Tensor reduce_sum(const at::Tensor& value);
  at::Tensor reduce_mean(const at::Tensor& value);
  at::Tensor gather(const at::Tensor& value);
  // The values of this process's replicas, in device order.
  std::vector<at::Tensor> local_results(const at::Tensor& value);

  int64_t steps() const;  // committed so far
  int64_t epoch() const;
  // The next batch is an epoch's first one. With steps() above 0: the epoch before it is over, and
  // a pass that belongs to its end may not have been made before a restart.
  bool epoch_begins() const;

 private:
  LoopBackend* backend_;
};

class Program {
 public:
  virtual ~Program() = default;
  virtual void build(Builder& builder) = 0;
  virtual void train_step(Step& step, const data::Batch& batch) = 0;
  // Gradients are off and models in eval mode.
  virtual void eval_step(Evaluation& evaluation, const data::Batch& batch) = 0;
  virtual void run(Loop& loop) { loop.fit(); }
  // With parameter servers: the keys that train_step will look up in `batch`, whose rows are then
  // on their way while the step before it is computed. What is not told, or was updated by this
  // worker meanwhile, is pulled when it is looked up. Called on another thread than everything
  // else, while a step may run: it reads the batch (in host memory) and what build() left in
  // members, and nothing that steps change.
  virtual void prefetch(Prefetch& rows, const data::Batch& batch) const {
    (void)rows;
    (void)batch;
  }
};

using ProgramFactory = std::function<std::unique_ptr<Program>()>;

}  // namespace muster
