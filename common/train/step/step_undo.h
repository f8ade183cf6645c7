// Rolls a step back. StepUndo stores the values of buffers and of requires_grad before the step. In
// immediate mode (step.h), each minimize() of a step updates the parameters before it returns. In
// this mode, StepUndo also stores a copy of the replica's state. A replica is one device's copy of
// the model, with its own thread. Internal to common/train. Used by the replica's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/train/replica/replica.h"
#include "common/train/step/step_buffers.h"

namespace muster {

class StepUndo {
 public:
  // The arguments must outlive this object.
  StepUndo(Replica* replica, StepBuffers* buffers) : replica_(replica), buffers_(buffers) {}

  // Begins a step. Saves the buffers and requires_grad.
  void Begin();
  // Copies the tensors of Replica::state(). Does nothing if this step has already copied them.
  // Called before each update in immediate mode.
  void KeepState();
  // Marks the copy of KeepState as invalid. The next KeepState reuses the memory of the copy.
  void DropState() { has_state_ = false; }
  // Restores the state before the step, and cancels the step's gradients. If `keeps_flags` is true,
  // does not restore requires_grad. May throw the error of a failed device.
  void PutBack(bool keeps_flags);

 private:
  Replica* const replica_;
  StepBuffers* const buffers_;
  std::vector<bool> requires_grad_;  // Replica::requires_grad() before the step.
  // The tensors of Replica::state(), and their copies.
  std::vector<at::Tensor> state_, state_copies_;
  bool has_state_ = false;  // True if state_copies_ has the state before this step.
};

// Returns copies of the tensors.
std::vector<at::Tensor> Clone(const std::vector<at::Tensor>& tensors);

}  // namespace muster
