// What a program calls in a step, and in a batch of a validation or test pass.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "muster/handles.h"

namespace muster {

class StepImpl;
class EvaluationImpl;
class PrefetchImpl;

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
