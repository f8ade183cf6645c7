// The interfaces of a training step and of a batch of a validation or test pass.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "muster/handles.h"
#include "muster/nested.h"
#include "muster/reduce_op.h"

namespace muster {

class StepImpl;
class EvaluationImpl;
class PrefetchImpl;

// A loss for one optimizer to minimize. Without weights, `loss` has shape [batch], and the sum over
// the examples is divided as the job's loss_reduction says. Weights are constants of the loss's
// shape, [batch] or [batch, ...] (one per token). The objective is then the weighted sum of the
// loss over the sum of the weights, both over all replicas and micro-batches. If the weights sum to
// 0, the gradient is 0. docs/extending.md describes weights with other values of loss_reduction and
// with parameter servers.
struct Objective {
  OptimizerHandle optimizer;
  at::Tensor loss;
  at::Tensor weights = {};
};

// Bags of keys. The rows of each bag are pooled into one row. There are two forms. With keys [n]
// and offsets [bags], bag i begins at offsets[i] and ends at the next offset, or at n. With keys
// [bags, length] there are no offsets. `weights` has one weight per key. Keys equal to `padding` do
// not count.
struct Bags {
  at::Tensor keys;
  at::Tensor offsets = {};
  at::Tensor weights = {};
  std::optional<int64_t> padding = {};
};
enum class Pooling {
  kSum,
  // Divides by the sum of the weights, or without weights by the number of keys. 0 for an empty
  // bag.
  kMean
};

struct TableKeys {
  EmbeddingHandle table;
  at::Tensor keys;
};
struct TableBags {
  EmbeddingHandle table;
  Bags bags;
  Pooling pooling = Pooling::kSum;
};

// One step on one replica, over its slice of one global batch. The slice may be empty (first
// dimension 0). A step is a transaction: its changes become visible when it commits, after the last
// reduction, on all replicas or on none. With one minimize() per step, the update is applied at the
// commit. The first step that calls minimize() twice is run again from its start. From that step
// on, each call applies its update at once, and the commit makes the updates final.
class Step {
 public:
  explicit Step(StepImpl* impl) : impl_(impl) {}

  int64_t number() const;  // From 1.
  int64_t epoch() const;   // From 0.
  int replica() const;
  int num_replicas() const;
  at::Device device() const;
  // Returns a generator that only this replica uses. It is seeded by (seed, step, replica,
  // micro-batch). LibTorch's default generator, in contrast, is shared by the CPU replicas of one
  // process.
  at::Generator generator();

  // Returns rows of a table, float32, [..., width], for integer keys of any shape. minimize()
  // computes the gradients of these rows. They are summed by key over the step and over all
  // replicas, and applied as one update per row when the step commits.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  // Returns [bags, width]. Differentiable also with respect to the weights.
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  // Looks up several tables, in the order given. With parameter servers this takes one round trip
  // instead of one per table.
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);
  // Differentiates with respect to the optimizer's parameters (and the looked-up rows) only,
  // all-reduces the gradients and applies the update.
  void minimize(OptimizerHandle optimizer, const at::Tensor& loss, const at::Tensor& weights = {});
  // Minimizes several losses together. Each loss is differentiated with respect to its own
  // optimizer's parameters, all of them before any update, and all gradients are reduced together.
  // Losses of one optimizer are summed. Use a further minimize() only for a loss that depends on an
  // update of this step.
  void minimize(const std::vector<Objective>& objectives);
  // Adds a loss that depends on the input, shape [batch], without weights. It is added to the next
  // minimize() of that optimizer. Without an optimizer it is added to the next minimize(), which
  // must then have exactly one optimizer.
  void add_loss(const at::Tensor& per_example_loss);
  void add_loss(const at::Tensor& per_example_loss, OptimizerHandle optimizer);
  // Like add_loss, but for a scalar loss on parameters. It counts once, whatever the number of
  // replicas.
  void regularize(const at::Tensor& scalar_loss);
  void regularize(const at::Tensor& scalar_loss, OptimizerHandle optimizer);
  // Reports a value for the log and TensorBoard, shape [batch], or with weights the shape of the
  // weights. It is reduced like a loss, and averaged over the epoch as "epoch_<name>". Every
  // replica must report the same names in every step, even with an empty batch. A name is any text
  // ("MAE(X, F(G(X)))"). Nested names are written "generator/adversarial".
  void report(const std::string& name, const at::Tensor& value, const at::Tensor& weights = {});
  // Reports a dictionary: report({{"generator", {{"adversarial", a}, {"cycle", c}}}}).
  void report(const Nested& values, const at::Tensor& weights = {});
  // Adds the batch to a metric of the epoch. Weights: one per example, or one per value that the
  // metric averages. Not every metric accepts weights.
  void update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target = {},
              const at::Tensor& weights = {});

  // Collective operations over all replicas. All replicas must call them in the same order, even
  // with an empty batch. Both are differentiable (all_reduce with kSum and kMean), as if the losses
  // of all replicas were summed. Shapes must be equal on all replicas, except the first dimension
  // for all_gather, which concatenates along it in replica order. Not available with parameter
  // servers, whose workers do not communicate with each other.
  at::Tensor all_reduce(const at::Tensor& value, ReduceOp op = ReduceOp::kSum);
  at::Tensor all_gather(const at::Tensor& value);

  // Show images and histograms in TensorBoard. They are taken from the first replica's part of the
  // batch, in every summary.every_steps-th step. In other steps these calls cost almost nothing.
  // Images have shape [batch, channels, height, width] with 1, 3 or 4 channels. They are bytes, or
  // floating-point from 0 to 1. The first three images of the batch are shown. Only the first call
  // for a name counts, in the first micro-batch of a step.
  void image(const std::string& name, const at::Tensor& images);
  void histogram(const std::string& name, const at::Tensor& values);
  // True if images and histograms of this step will be shown. Check it before expensive
  // preparation.
  bool wants_summary() const;
  // Runs `action` when the step commits, after the updates. Use it for constraints on weights. Must
  // not throw.
  void on_commit(std::function<void()> action);

 private:
  StepImpl* impl_;
};

// One batch of a validation or test pass on one replica. May be empty.
class Evaluation {
 public:
  explicit Evaluation(EvaluationImpl* impl) : impl_(impl) {}
  Split split() const;
  at::Device device() const;
  // As in Step.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);
  // Adds to the metric "loss", which is the mean over all examples of the pass. `weights` has the
  // loss's shape. With weights, the metric is the weighted sum divided by the sum of the weights,
  // both over the whole pass. Within a pass, either all calls have weights or none.
  void loss(const at::Tensor& loss, const at::Tensor& weights = {});
  void update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target = {},
              const at::Tensor& weights = {});
  // Reports a value, shape [batch], for the log, TensorBoard and result.json. The reported number
  // is the mean over all examples of the pass. With weights of the value's shape, it is the
  // weighted sum divided by the sum of the weights, both over the whole pass. Every replica must
  // report the same names in a pass, even with an empty batch. "loss" and the names of metrics are
  // reserved.
  void report(const std::string& name, const at::Tensor& value, const at::Tensor& weights = {});
  void report(const Nested& values, const at::Tensor& weights = {});  // As in Step.
  // As in Step, in the first batch of the pass.
  void image(const std::string& name, const at::Tensor& images);
  void histogram(const std::string& name, const at::Tensor& values);
  bool wants_summary() const;

 private:
  EvaluationImpl* impl_;
};

// Collects the keys of rows that a batch will look up. See Program::prefetch.
class Prefetch {
 public:
  explicit Prefetch(PrefetchImpl* impl) : impl_(impl) {}
  // Integer keys of any shape that train_step will look up. May be called several times for one
  // table.
  void keys(EmbeddingHandle table, const at::Tensor& keys);

 private:
  PrefetchImpl* impl_;
};

}  // namespace muster
