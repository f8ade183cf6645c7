// The destination of one optimizer's gradients in a step: all replicas (GradientBuckets) or
// parameter servers (PushedGradients).
//
// The calls of a reduction: Begin; for each micro-batch BeginBackward, OnGradient..., EndBackward;
// then LaunchAll and Finish, or Cancel. With several optimizers, each of these calls is made for
// all of them before the next call. Used by its replica's thread, except OnGradient, which autograd
// may call from its own device thread during a backward pass.
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
    // True if the step cannot start again, so that complete parts may be launched at once.
    bool early = false;
    bool norm = false;  // norm() will be called.
  };
  virtual void Begin(const Reduction& reduction) = 0;
  // `last`: this is the last micro-batch. `overlap`: complete parts may be launched during the
  // backward pass.
  virtual void BeginBackward(bool last, bool overlap = true) = 0;
  // Moves the gradient of parameter `index` out of its .grad, where it was accumulated. May be
  // called again for the same parameter in one pass, if a custom autograd function runs a pass of
  // its own. The gradients add up.
  virtual void OnGradient(int index) = 0;
  virtual void EndBackward() = 0;
  // Multiplies the gradients so far. Called between two micro-batches.
  virtual void Scale(double factor) = 0;
  // Launches the remaining parts, followed by `control` (see Finish).
  virtual void LaunchAll(const at::Tensor& control) = 0;
  // Launches what LaunchAll did not, and blocks until everything is reduced. `control` is 1-D
  // float32; it is undefined unless the step commits with this call. Afterwards it holds the sums
  // over all replicas, and gradients() holds the global gradients.
  virtual absl::Status Finish(at::Tensor* control) = 0;
  // Indexed by parameter. Undefined for parameters that this reduction did not use.
  virtual const std::vector<at::Tensor>& gradients() const = 0;
  // Valid after Finish. Returns whether a parameter had a gradient in this reduction on any
  // replica, or with parameter servers on this replica.
  virtual bool used(int index) const = 0;
  // Valid between Finish and the update. Returns the L2 norm of all gradients together, before
  // clipping. With parameter servers it covers only this replica's gradients. Requires
  // Reduction::norm.
  virtual double norm() const = 0;
  // Launches nothing more, waits for the launched parts and discards them. For a step that starts
  // again or is given up.
  virtual void Cancel() = 0;
  // The maximum number of elements of `control` for Finish.
  virtual int64_t control_capacity() const = 0;

  // Returns true for parameter servers: Finish then also clips and makes the update, and
  // gradients() are those of this replica. gradients() are valid before Finish, and only if they
  // are wanted whole.
  virtual bool updates() const { return false; }
  // Returns whether a part was launched that cannot be taken back.
  virtual bool launched() const { return false; }
};

}  // namespace muster
