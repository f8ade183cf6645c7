// The interfaces that Muster passes to Program::train_step, eval_step and prefetch.
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

// A loss for one optimizer to minimize. Without weights, `loss` has shape [batch], and the job's
// loss_reduction selects the divisor of the sum over the examples. With weights, `loss` and
// `weights` have the same shape, [batch] or [batch, ...] (such as one per token). The objective is
// then the weighted sum of the loss, divided by the sum of the weights. Both sums are over all
// replicas and micro-batches. If the weights sum to 0, the gradient is 0. Weights are constants.
// docs/extending.md describes weights with other values of loss_reduction and with parameter
// servers.
struct Objective {
  OptimizerHandle optimizer;
  at::Tensor loss;
  at::Tensor weights = {};
};

// Bags of keys, as for torch::nn::EmbeddingBag. A lookup pools the rows of each bag into one row.
// In the first form, with keys [n] and offsets [bags], bag i begins at offsets[i] and ends at the
// next offset, or at n. In the second form, keys are [bags, length] without offsets. `weights` has
// one weight per key. Keys equal to `padding` do not count.
struct Bags {
  at::Tensor keys;
  at::Tensor offsets = {};
  at::Tensor weights = {};
  std::optional<int64_t> padding = {};
};
enum class Pooling {
  kSum,
  // Divides by the sum of the weights or, without weights, by the number of keys. The row of an
  // empty bag is 0.
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
// dimension 0). A step is a transaction: after the last reduction, its changes become visible on
// all replicas or on none (the commit). With one minimize() per step, the commit applies the
// update. If a step calls minimize() a second time, the step is run again from its start. In this
// run and in all later steps, each minimize() applies its update at once, and the commit makes the
// updates final.
class Step {
 public:
  explicit Step(StepImpl* impl) : impl_(impl) {}

  int64_t number() const;  // Steps count from 1.
  int64_t epoch() const;   // Epochs count from 0.
  int replica() const;
  int num_replicas() const;
  at::Device device() const;
  // Returns a random generator of this replica, seeded by (seed, step, replica, micro-batch).
  // LibTorch's default generator is shared by the CPU replicas of one process.
  at::Generator generator();

  // Returns rows of a table, float32 [..., width], for integer keys of any shape [...]. minimize()
  // computes the gradients of these rows. The commit sums the gradients by key over the step and
  // over all replicas, and applies one update per row.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  // Returns pooled rows [bags, width]. The result is also differentiable with respect to the
  // weights.
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  // Looks up several tables, in the order given. With parameter servers, one call takes one round
  // trip for all tables.
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);
  // Computes the gradients of the optimizer's parameters and of the looked-up rows, all-reduces the
  // gradients and applies the update.
  void minimize(OptimizerHandle optimizer, const at::Tensor& loss, const at::Tensor& weights = {});
  // Minimizes several losses together. Differentiates each loss with respect to the parameters of
  // its own optimizer. Computes all gradients before any update, and reduces all of them together.
  // Losses of the same optimizer are summed. Use a second minimize() only for a loss that depends
  // on an update of this step.
  void minimize(const std::vector<Objective>& objectives);
  // Adds a loss per example, shape [batch], to the next minimize() of the optimizer. The loss has
  // no weights. Without the argument `optimizer`, the loss is added to the next minimize(), which
  // must then have exactly one optimizer.
  void add_loss(const at::Tensor& per_example_loss);
  void add_loss(const at::Tensor& per_example_loss, OptimizerHandle optimizer);
  // Like add_loss, for a scalar loss that depends only on parameters. The loss counts once, not
  // once per replica.
  void regularize(const at::Tensor& scalar_loss);
  void regularize(const at::Tensor& scalar_loss, OptimizerHandle optimizer);
  // Reports a value for the log and TensorBoard. `value` has shape [batch] or, with weights, the
  // shape of the weights. The value is reduced like a loss. Its mean over the epoch appears as
  // "epoch_<name>". Every replica must report the same names in every step, even with an empty
  // batch. A name may be any text, such as "MAE(X, F(G(X)))". Nested names are written
  // "generator/adversarial".
  void report(const std::string& name, const at::Tensor& value, const at::Tensor& weights = {});
  // Reports a dictionary: report({{"generator", {{"adversarial", a}, {"cycle", c}}}}).
  void report(const Nested& values, const at::Tensor& weights = {});
  // Adds the batch to a metric of the epoch. `weights` has one weight per example, or one per value
  // that the metric averages. Some metrics do not accept weights.
  void update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target = {},
              const at::Tensor& weights = {});

  // Collective operations over all replicas. All replicas must call them in the same order, even
  // with an empty batch. all_gather, and all_reduce with kSum or kMean, are differentiable. The
  // gradient is computed as if the losses of all replicas were summed. all_gather concatenates
  // along the first dimension, in replica order. Shapes must be equal on all replicas, except the
  // first dimension of all_gather. Not available with parameter servers, because their workers do
  // not communicate with each other.
  at::Tensor all_reduce(const at::Tensor& value, ReduceOp op = ReduceOp::kSum);
  at::Tensor all_gather(const at::Tensor& value);

  // These functions show images and histograms of the first replica in TensorBoard, in every
  // summary.every_steps-th step. In other steps these calls cost almost nothing. Images have shape
  // [batch, channels, height, width] with 1, 3 or 4 channels, and are bytes, or floating-point in
  // [0, 1]. TensorBoard shows the first three images of the batch. For each name, only the first
  // call in the first micro-batch of a step counts.
  void image(const std::string& name, const at::Tensor& images);
  void histogram(const std::string& name, const at::Tensor& values);
  // Returns true if TensorBoard will show images and histograms of this step. Call this function
  // before expensive preparation.
  bool wants_summary() const;
  // Runs `action` when the step commits, after the updates. A program can use this for constraints
  // on weights. `action` must not throw.
  void on_commit(std::function<void()> action);

 private:
  StepImpl* impl_;
};

// One batch of a validation or test pass on one replica. The batch may be empty.
class Evaluation {
 public:
  explicit Evaluation(EvaluationImpl* impl) : impl_(impl) {}
  Split split() const;
  at::Device device() const;
  // These functions work as in Step.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);
  // Adds the batch to the metric "loss", the mean over all examples of the pass. With weights of
  // the loss's shape, the metric is the weighted sum divided by the sum of the weights, both over
  // the whole pass. In a pass, either all calls or none must have weights.
  void loss(const at::Tensor& loss, const at::Tensor& weights = {});
  void update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target = {},
              const at::Tensor& weights = {});
  // Reports a value, shape [batch], for the log, TensorBoard and result.json. The result is the
  // mean over all examples of the pass. With weights of the value's shape, the result is the
  // weighted sum divided by the sum of the weights, both over the whole pass. Every replica must
  // report the same names in a pass, even with an empty batch. "loss" and the names of metrics are
  // reserved.
  void report(const std::string& name, const at::Tensor& value, const at::Tensor& weights = {});
  void report(const Nested& values, const at::Tensor& weights = {});  // As in Step.
  // As in Step, but only the first batch of the pass counts.
  void image(const std::string& name, const at::Tensor& images);
  void histogram(const std::string& name, const at::Tensor& values);
  bool wants_summary() const;

 private:
  EvaluationImpl* impl_;
};

// Collects the keys that a batch will look up. See Program::prefetch.
class Prefetch {
 public:
  explicit Prefetch(PrefetchImpl* impl) : impl_(impl) {}
  // Adds integer keys of any shape that train_step will look up. A program may call this several
  // times for one table.
  void keys(EmbeddingHandle table, const at::Tensor& keys);

 private:
  PrefetchImpl* impl_;
};

}  // namespace muster
