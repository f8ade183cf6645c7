// The interface through which a step delivers the gradients of one optimizer. GradientBuckets
// reduces them over all replicas, and PushedGradients pushes them to parameter servers.
//
// A reduction has these calls: Begin, then for each micro-batch BeginBackward, OnGradient for each
// gradient, and EndBackward, then LaunchAll and Finish. Cancel may end it at any point. With
// several optimizers, LaunchAll is called for all of them before the first Finish. Used by the
// replica's thread, except OnGradient, which autograd may call from its own device thread during a
// backward pass.
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
    // True if the step will not start again. Complete parts may then be sent during the backward
    // pass.
    bool early = false;
    bool norm = false;  // norm() will be called.
  };
  virtual void Begin(const Reduction& reduction) = 0;
  // `last` is true for the last micro-batch. `overlap` is true if complete parts may be launched
  // during the backward pass.
  virtual void BeginBackward(bool last, bool overlap = true) = 0;
  // Moves the gradient of parameter `index` out of its .grad. If a custom autograd function runs a
  // backward pass of its own, this may be called several times for a parameter in one pass. The
  // gradients are then added.
  virtual void OnGradient(int index) = 0;
  virtual void EndBackward() = 0;
  // Multiplies the gradients so far by `factor`. Called before BeginBackward of the last
  // micro-batch.
  virtual void Scale(double factor) = 0;
  // Launches the remaining parts and `control` (see Finish).
  virtual void LaunchAll(const at::Tensor& control) = 0;
  // Calls LaunchAll if it was not called. Blocks until everything is reduced. `control` is the
  // step's control data, a 1-D float32 tensor. It is undefined unless the step commits with this
  // call. Afterwards, `control` has the sums over all replicas, and gradients() the global
  // gradients.
  virtual absl::Status Finish(at::Tensor* control) = 0;
  // Returns the gradients, indexed by parameter. The tensor is undefined for a parameter that this
  // reduction did not use.
  virtual const std::vector<at::Tensor>& gradients() const = 0;
  // Returns true if the parameter had a gradient in this reduction on any replica. With parameter
  // servers, only this replica counts. Valid after Finish.
  virtual bool used(int index) const = 0;
  // Returns the L2 norm of all gradients together, before clipping. With parameter servers, returns
  // the norm of this replica's gradients. Valid between Finish and the update. REQUIRES:
  // Reduction::norm is set.
  virtual double norm() const = 0;
  // Waits for the launched parts, and discards everything. Called for a step that starts again or
  // is given up.
  virtual void Cancel() = 0;
  // Returns the maximum number of elements of `control`.
  virtual int64_t control_capacity() const = 0;

  // Returns true for parameter servers. This object then also clips, and the servers make the
  // update. gradients() then has this replica's gradients and is valid only before LaunchAll. It
  // has defined tensors only if the job clips or uses float16.
  virtual bool updates() const { return false; }
  // Returns true if a part that cannot be taken back was launched.
  virtual bool launched() const { return false; }
};

}  // namespace muster
