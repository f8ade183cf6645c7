// Where the gradients of one optimizer go in a step: to all replicas (GradientBuckets) or to
// parameter servers (PushedGradients).
//
// For each reduction: Begin, then for each micro-batch BeginBackward, OnGradient..., EndBackward,
// then Finish, or Cancel. Used by its replica's thread, but for OnGradient, which autograd may call
// from its own device thread during a backward pass.
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
  };
  virtual void Begin(const Reduction& reduction) = 0;
  // `last`: no micro-batch follows.
  virtual void BeginBackward(bool last) = 0;
  // The gradient of parameter `index` has been accumulated in its .grad: moves it away.
  virtual void OnGradient(int index) = 0;
  virtual void EndBackward() = 0;
  // Waits until all is reduced. `control` (1-D float32, undefined unless the step commits with
  // this) then holds the sums over all replicas, and gradients() the global gradients.
  virtual absl::Status Finish(at::Tensor* control) = 0;
  // By parameter; undefined for those that were not used in this reduction.
  virtual const std::vector<at::Tensor>& gradients() const = 0;
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
