// Where the gradients of one optimizer go in a step: to all replicas (GradientBuckets) or to
// parameter servers (PushedGradients).
//
// For each reduction: Begin, then for each micro-batch BeginBackward, OnGradient..., EndBackward,
// then LaunchAll and Finish (several optimizers: all of the one before any of the other), or
// Cancel. Used by its replica's thread, but for OnGradient, which autograd may call from its own
// device thread during a backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "muster/status.h"

namespace muster {

class GradientSink {
 public:
  virtual ~GradientSink() = default;

  struct Reduction {
    double learning_rate = 0;
    bool early = false;  // the step cannot start again: what is complete may go at once
    bool norm = false;   // norm() is wanted
  };
  virtual void Begin(const Reduction& reduction) = 0;
  // `last`: no micro-batch follows. `overlap`: what is complete may go while the backward pass
  // runs.
  virtual void BeginBackward(bool last, bool overlap = true) = 0;
  // The gradient of parameter `index` has been accumulated in its .grad: moves it away. Once more
  // in one pass where a custom autograd function runs a pass of its own: the gradients add up.
  virtual void OnGradient(int index) = 0;
  virtual void EndBackward() = 0;
  // Between two micro-batches: multiplies what came so far.
  virtual void Scale(double factor) = 0;
  // Launches what is left, with `control` behind it (as Finish says).
  virtual void LaunchAll(const at::Tensor& control) = 0;
  // Waits until all is reduced, and launches before what LaunchAll did not. `control` (1-D float32,
  // undefined unless the step commits with this) then holds the sums over all replicas, and
  // gradients() the global gradients.
  virtual absl::Status Finish(at::Tensor* control) = 0;
  // By parameter; undefined for those that were not used in this reduction.
  virtual const std::vector<at::Tensor>& gradients() const = 0;
  // After Finish: whether a parameter had a gradient in this reduction, on any replica (parameter
  // servers: on this one).
  virtual bool used(int index) const = 0;
  // After Finish, before the update: the L2 norm of all gradients together, before clipping
  // (parameter servers: of this replica's own). REQUIRES: Reduction::norm.
  virtual double norm() const = 0;
  // Launches nothing more, waits for what is under way and forgets it. For a step that is run again
  // or given up.
  virtual void Cancel() = 0;
  // Elements of `control` that Finish can take.
  virtual int64_t control_capacity() const = 0;

  // Parameter servers: Finish also makes the update, and clips before it. gradients() are those of
  // this replica, and before Finish, where they are wanted whole.
  virtual bool updates() const { return false; }
  // Something was launched that cannot be taken back.
  virtual bool launched() const { return false; }
};

}  // namespace muster
