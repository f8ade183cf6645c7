// The interfaces that Muster passes to Program::train_step, eval_step and prefetch. A replica is
// one device's copy of the program. An embedding table (Builder::embedding) maps integer keys to
// rows of `width` numbers.
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

// A loss for one optimizer to minimize. Without weights, `loss` has shape [batch]. The objective is
// the sum of the losses, divided as the job's "loss_reduction" requires. With weights, `loss` and
// `weights` have the same shape, [batch] or [batch, ...], for example one value per token. By
// default, the objective with weights is the sum of weights * loss, divided by the sum of the
// weights. Both sums are over all replicas and micro-batches. If the weights sum to 0, the gradient
// is 0. Weights are constants: they get no gradient. docs/extending.md describes weights for the
// other values of "loss_reduction" and with parameter servers.
struct Objective {
  OptimizerHandle optimizer;
  at::Tensor loss;
  at::Tensor weights = {};
};

// Bags (lists) of keys, as for torch::nn::EmbeddingBag. A lookup combines the rows of each bag into
// one row. There are two forms. In the first form, `keys` has shape [n] and `offsets` has shape
// [bags]. Bag i begins at keys[offsets[i]] and ends before the beginning of bag i + 1. The last bag
// ends at the end of `keys`. In the second form, `keys` has shape [bags, length], and there are no
// offsets. In both forms, `weights` may have one weight per key. Keys equal to `padding` do not
// count.
struct Bags {
  at::Tensor keys;
  at::Tensor offsets = {};
  at::Tensor weights = {};
  std::optional<int64_t> padding = {};
};
enum class Pooling {
  kSum,
  // The sum, divided by the sum of the weights. Without weights, the sum is divided by the number
  // of keys. The result for an empty bag is 0.
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

// One step on one replica, over the replica's slice of one global batch. The slice may be empty
// (first dimension 0). A step is a transaction: all replicas commit the step's changes, or no
// replica does. The commit follows the step's last all-reduce. With one minimize() per step, the
// commit updates the parameters. The first step that calls minimize() twice is started over. From
// then on, each minimize() of every step applies its update before it returns. A failure before the
// commit undoes these updates. With parameter servers, pushed gradients stay applied. In such a
// job, a step that has pushed gradients before its second minimize() is not started over.
class Step {
 public:
  explicit Step(StepImpl* impl) : impl_(impl) {}

  int64_t number() const;  // Returns the number of the step, from 1.
  int64_t epoch() const;   // Returns the number of the epoch, from 0.
  int replica() const;
  int num_replicas() const;
  at::Device device() const;
  // Returns a random generator of this replica. The generator's seed depends on the job's seed, the
  // step, the replica and the micro-batch. On the CPU, use this generator instead of LibTorch's
  // default generator, which all CPU replicas of a process share.
  at::Generator generator();

  // Returns rows of a table, float32 [..., width], for integer keys of any shape [...]. minimize()
  // computes the gradients of these rows. The commit adds up all gradients of a key, over the step
  // and over all replicas, and applies one update to the key's row.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  // Returns one combined row for each bag, [bags, width]. The result is differentiable with respect
  // to the rows and the weights.
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  // Looks up several tables. The results are in the order of the arguments. With parameter servers,
  // one call needs one network round trip for all tables.
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);
  // Computes the gradients of the optimizer's parameters and of the looked-up rows. Muster
  // all-reduces the gradients and applies the update. The struct Objective describes `loss` and
  // `weights`.
  void minimize(OptimizerHandle optimizer, const at::Tensor& loss, const at::Tensor& weights = {});
  // Minimizes several losses together. Each loss is differentiated with respect to the parameters
  // of its own optimizer. All gradients are computed before any update, and are all-reduced
  // together. Losses of the same optimizer are summed. Call minimize() a second time only for a
  // loss that depends on an update of this step.
  void minimize(const std::vector<Objective>& objectives);
  // Adds a loss per example, shape [batch], to the loss of the next minimize() of `optimizer`. The
  // loss has no weights. Without the argument `optimizer`, the loss is added to the next minimize()
  // of any optimizer. That minimize() must have exactly one optimizer.
  void add_loss(const at::Tensor& per_example_loss);
  void add_loss(const at::Tensor& per_example_loss, OptimizerHandle optimizer);
  // Like add_loss, for a scalar loss that depends only on parameters. All replicas compute the same
  // loss, so the loss counts once, not once per replica.
  void regularize(const at::Tensor& scalar_loss);
  void regularize(const at::Tensor& scalar_loss, OptimizerHandle optimizer);
  // Reports a value for the log and TensorBoard. Without weights, `value` has shape [batch]. With
  // weights, `value` and `weights` have the same shape. Muster reduces the values over all replicas
  // like a loss. TensorBoard shows the mean over an epoch as "epoch_<name>". Every replica must
  // report the same names in every step, even with an empty batch. A name may be any text, such as
  // "MAE(X, F(G(X)))". The name of a value in a nested dictionary is, for example,
  // "generator/adversarial".
  void report(const std::string& name, const at::Tensor& value, const at::Tensor& weights = {});
  // Reports a dictionary: report({{"generator", {{"adversarial", a}, {"cycle", c}}}}).
  void report(const Nested& values, const at::Tensor& weights = {});
  // Adds the batch to a metric. The metric covers the epoch. `weights` has one weight per example,
  // or one weight per value that the metric averages. A metric without WeightedIncrement
  // (muster/metrics.h) accepts no weights.
  void update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target = {},
              const at::Tensor& weights = {});

  // Collective operations over all replicas. All replicas must make the same calls in the same
  // order, even with an empty batch. all_gather concatenates along the first dimension, in the
  // order of the replicas. Shapes must be equal on all replicas, except that all_gather accepts
  // different first dimensions. all_gather, and all_reduce with kSum or kMean, are differentiable.
  // The backward pass differentiates the sum of all replicas' losses. Not available with parameter
  // servers, because the workers of such a job do not communicate with each other.
  at::Tensor all_reduce(const at::Tensor& value, ReduceOp op = ReduceOp::kSum);
  at::Tensor all_gather(const at::Tensor& value);

  // image() and histogram() show values of the first replica in TensorBoard, in one of every n
  // steps. n is the job's "summary.every_steps". In all other steps these calls cost almost
  // nothing. Images have shape [batch, channels, height, width] with 1, 3 or 4 channels. Pixels are
  // uint8, or floating-point in [0, 1]. TensorBoard shows the first three images of the batch. An
  // empty tensor is ignored. Of the other calls in a step, only the first for each name counts.
  void image(const std::string& name, const at::Tensor& images);
  void histogram(const std::string& name, const at::Tensor& values);
  // Returns true if TensorBoard will show images and histograms of this step. A program can use
  // this to compute expensive images only when they are shown.
  bool wants_summary() const;
  // Registers a function that Muster runs at the step's commit, after the updates. A program can
  // use this to enforce constraints on weights. `action` must not throw.
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
  // The lookups work as in Step, but compute no gradients.
  at::Tensor lookup(EmbeddingHandle table, const at::Tensor& keys);
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);
  // Adds the batch to the metric "loss". Without weights, the metric is the mean over all examples
  // of the pass. With weights of the loss's shape, the metric is the sum of weights * loss divided
  // by the sum of the weights, both over the whole pass. In a pass, either all calls must have
  // weights, or no call may have weights.
  void loss(const at::Tensor& loss, const at::Tensor& weights = {});
  void update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target = {},
              const at::Tensor& weights = {});
  // Reports a value, shape [batch], for the log, TensorBoard and result.json. Without weights, the
  // result is the mean over all examples of the pass. With weights of the value's shape, the result
  // is the sum of weights * value divided by the sum of the weights, both over the whole pass.
  // Every replica must report the same names in a pass, even with an empty batch. "loss" and the
  // names of metrics are reserved.
  void report(const std::string& name, const at::Tensor& value, const at::Tensor& weights = {});
  void report(const Nested& values, const at::Tensor& weights = {});  // Reports a dictionary.
  // The following functions work as in Step, but only for the first batch of a pass.
  void image(const std::string& name, const at::Tensor& images);
  void histogram(const std::string& name, const at::Tensor& values);
  bool wants_summary() const;

 private:
  EvaluationImpl* impl_;
};

// Collects the keys that the step of a batch will look up. See Program::prefetch.
class Prefetch {
 public:
  explicit Prefetch(PrefetchImpl* impl) : impl_(impl) {}
  // Adds keys that train_step will look up: integers of any shape. A program may call this function
  // several times for one table.
  void keys(EmbeddingHandle table, const at::Tensor& keys);

 private:
  PrefetchImpl* impl_;
};

}  // namespace muster
