// The interface through which a training step delivers the gradients of one optimizer. A replica is
// one device's copy of the model, with its own thread. GradientBuckets sums the gradients over all
// replicas. LocalGradients keeps the gradients of the only replica. PushedGradients pushes the
// gradients to parameter servers.
//
// A reduction is the delivery of one set of gradients. Its parts are buckets, or pushes to servers.
// A micro-batch is a part of the replica's slice of a batch. The calls of a reduction are, in this
// order:
//
//   Begin
//   for each micro-batch: BeginBackward, OnGradient for each gradient, EndBackward
//   LaunchAll
//   Finish
//
// Cancel may end a reduction at any point. If several optimizers update together, LaunchAll is
// called for all their sinks before the first Finish. Used by the replica's thread, with one
// exception: autograd may call OnGradient from its own device thread during a backward pass.
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
    // True if the step will not be rolled back and repeated. Complete parts may then be sent during
    // the backward pass.
    bool early = false;
    bool norm = false;  // True if norm() will be called.
  };
  virtual void Begin(const Reduction& reduction) = 0;
  // `last` is true for the last micro-batch. `overlap` is true if complete parts may be launched
  // during the backward pass.
  virtual void BeginBackward(bool last, bool overlap) = 0;
  // Moves the gradient of parameter `index` out of its .grad. If a custom autograd function runs a
  // backward pass of its own, there may be several calls for a parameter in one pass. The gradients
  // are then added.
  virtual void OnGradient(int index) = 0;
  virtual void EndBackward() = 0;
  // Multiplies all gradients that this reduction has received so far by `factor`. Called before
  // BeginBackward of the last micro-batch.
  virtual void Scale(double factor) = 0;
  // Launches all remaining parts, and `control` (see Finish).
  virtual void LaunchAll(const at::Tensor& control) = 0;
  // Calls LaunchAll if LaunchAll was not called before. Blocks until everything is reduced.
  // `control` is the step's control data: numbers such as the loss, as a 1-D float32 tensor.
  // `control` is defined only in the last reduction of the step. After Finish, `control` has the
  // sums over all replicas, and gradients() has the gradients of the global batch.
  virtual absl::Status Finish(at::Tensor* control) = 0;
  // Returns the gradients, indexed by parameter. The tensor of a parameter without a gradient is
  // undefined.
  virtual const std::vector<at::Tensor>& gradients() const = 0;
  // Returns true if the parameter had a gradient on any replica in this reduction. With parameter
  // servers, only this replica counts. Valid after Finish.
  virtual bool used(int index) const = 0;
  // Returns the L2 norm of all gradients together, before clipping. With parameter servers, returns
  // the norm of this replica's gradients. Called between Finish and the update. REQUIRES:
  // Reduction::norm is true.
  virtual double norm() const = 0;
  // Waits for the launched parts, and discards all gradients. Called for a step that is rolled
  // back.
  virtual void Cancel() = 0;
  // Returns the maximum number of elements of `control`.
  virtual int64_t control_capacity() const = 0;

  // Returns true for the sinks of parameter servers. Such a sink clips the gradients itself, and
  // the servers make the update. Its gradients() has only this replica's gradients, and is valid
  // only before LaunchAll. The tensors are defined only if the job clips or uses float16.
  virtual bool on_servers() const { return false; }
  // Returns true if a launched part cannot be taken back. Always false for buckets.
  virtual bool launched() const { return false; }
};

// Functions that the sinks share. Gradient mode must be off during a call (at::NoGradGuard).

// Moves the gradient out of the .grad of `parameter`, as a dense tensor. Returns an undefined
// tensor if there is no gradient.
at::Tensor TakeGradient(const at::Tensor& parameter);
// Adds `gradient` to `sum`. An undefined `sum` takes the memory of `gradient`. `again` is true if
// the same backward pass has already added a gradient to `sum`.
void AddGradient(const at::Tensor& gradient, bool again, at::Tensor* sum);
// Copies `gradient` if another tensor shares its memory. For example, in `a.view({2, 2}) +
// b.view({2, 2})`, the gradients of `a` and `b` are views of one tensor. The result can be changed
// in place. Called after the backward pass, because the pass holds references to the gradients.
void OwnMemory(at::Tensor* gradient);

}  // namespace muster
