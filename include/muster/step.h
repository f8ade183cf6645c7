// What a program calls in a step, and in a batch of a validation or test pass.
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

// What one optimizer minimizes. Without weights: `loss` has shape [batch], and the examples are
// summed and divided as the job's loss_reduction says. With weights, constants of the loss's own
// shape, [batch] or [batch, ...] (one for each token): the weighted sum of the loss over the sum of
// the weights, both over all replicas and micro-batches; where the weights sum to 0, the gradient
// is 0. docs/extending.md says what other values of loss_reduction make of weights, and parameter
// servers.
struct Objective {
  OptimizerHandle optimizer;
  at::Tensor loss;
  at::Tensor weights = {};
};

// Bags of keys, whose rows are pooled into one row each: of keys [n] and offsets [bags] (bag i
// begins at offsets[i] and ends where the next one does, or at n), or of keys [bags, length]
// without offsets. Weights: one for each key. Keys equal to `padding` do not count.
struct Bags {
  at::Tensor keys;
  at::Tensor offsets = {};
  at::Tensor weights = {};
  std::optional<int64_t> padding = {};
};
enum class Pooling {
  kSum,
  kMean  // by the weights, where there are some, else by the number of keys; 0 for an empty bag
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
  // [bags, width]; weights are differentiable too.
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  // Of several tables at once, in this order: with parameter servers one round trip instead of one
  // for each.
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);
  // Differentiates with respect to the optimizer's parameters (and the rows that were looked up)
  // only, all-reduces the gradients and applies the update.
  void minimize(OptimizerHandle optimizer, const at::Tensor& loss, const at::Tensor& weights = {});
  // Several at once: each loss is differentiated with respect to its own optimizer's parameters,
  // all of them before any update, and all gradients are reduced together. Losses of one optimizer
  // add up. Call minimize() once more only for a loss that depends on an update of this step.
  void minimize(const std::vector<Objective>& objectives);
  // Added to the next minimize() of that optimizer, or without one to the next minimize(), which
  // must be of one optimizer then: a loss that depends on the input, shape [batch], without
  // weights.
  void add_loss(const at::Tensor& per_example_loss);
  void add_loss(const at::Tensor& per_example_loss, OptimizerHandle optimizer);
  // Likewise: a loss on parameters, a scalar, counted once however many replicas there are.
  void regularize(const at::Tensor& scalar_loss);
  void regularize(const at::Tensor& scalar_loss, OptimizerHandle optimizer);
  // A value for the log and TensorBoard, shape [batch] (with weights that of the weights), reduced
  // like a loss, and as a mean over the epoch ("epoch_<name>"). Every replica must report the same
  // names in every step, with an empty batch too. A name is any text ("MAE(X, F(G(X)))"); nested
  // ones are written "generator/adversarial".
  void report(const std::string& name, const at::Tensor& value, const at::Tensor& weights = {});
  // A dictionary of them: report({{"generator", {{"adversarial", a}, {"cycle", c}}}}).
  void report(const Nested& values, const at::Tensor& weights = {});
  // Adds the batch to a metric of the epoch. Weights: one for each example, or for each value that
  // the metric averages; not every metric takes them.
  void update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target = {},
              const at::Tensor& weights = {});

  // Over all replicas, which must all call these, in the same order, with an empty batch too. Both
  // are differentiable (all_reduce by kSum and kMean), as if the losses of all replicas were
  // summed. Shapes are equal on all replicas, but for the first dimension of all_gather, by which
  // it concatenates in the order of replicas. Not with parameter servers, whose workers do not
  // meet.
  at::Tensor all_reduce(const at::Tensor& value, ReduceOp op = ReduceOp::kSum);
  at::Tensor all_gather(const at::Tensor& value);

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
  at::Tensor lookup(EmbeddingHandle table, const Bags& bags, Pooling pooling);
  std::vector<at::Tensor> lookup(const std::vector<TableKeys>& keys);
  std::vector<at::Tensor> lookup(const std::vector<TableBags>& bags);
  // The metric "loss": a mean over all examples. With weights, of the loss's own shape: the
  // weighted sum over the sum of the weights, of the whole pass. A pass has weights in all calls or
  // in none.
  void loss(const at::Tensor& loss, const at::Tensor& weights = {});
  void update(MetricHandle metric, const at::Tensor& output, const at::Tensor& target = {},
              const at::Tensor& weights = {});
  // A value for the log, TensorBoard and result.json, shape [batch]: its mean over all examples of
  // the pass. With weights, of the value's own shape: the weighted sum over the sum of the weights,
  // of the whole pass. Every replica must report the same names in a pass, with an empty batch too;
  // "loss" and the names of metrics are taken.
  void report(const std::string& name, const at::Tensor& value, const at::Tensor& weights = {});
  void report(const Nested& values, const at::Tensor& weights = {});  // as Step's
  // As Step's, in the pass's first batch.
  void image(const std::string& name, const at::Tensor& images);
  void histogram(const std::string& name, const at::Tensor& values);
  bool wants_summary() const;

 private:
  EvaluationImpl* impl_;
};

// Where a program tells which rows a batch will want: see Program::prefetch.
class Prefetch {
 public:
  explicit Prefetch(PrefetchImpl* impl) : impl_(impl) {}
  // Keys that train_step will look up, integers of any shape; any number of times for a table.
  void keys(EmbeddingHandle table, const at::Tensor& keys);

 private:
  PrefetchImpl* impl_;
};

}  // namespace muster
