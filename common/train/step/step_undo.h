// The state to which a step can be taken back: the values of buffers and of requires_grad before
// the step, the rules of optimizers, and the undo copy of immediate mode (step.h). Internal to
// common/train. Used by the replica's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/train/replica/replica.h"
#include "common/train/step/step_buffers.h"

namespace muster {

class StepUndo {
 public:
  // Both must outlive this object.
  StepUndo(Replica* replica, StepBuffers* buffers) : replica_(replica), buffers_(buffers) {}

  // Begins a step.
  void Begin();
  // Copies the tensors of Replica::state(), if this step has not copied them before. Called before
  // each update of immediate mode.
  void KeepState();
  // Discards the copy of KeepState. The next copy uses its memory.
  void DropState() { has_state_ = false; }
  // Takes the step back, and cancels its gradients. If `keeps_flags` is true, requires_grad stays
  // as the step has set it. May throw the error of a failed device.
  void PutBack(bool keeps_flags);

 private:
  Replica* const replica_;
  StepBuffers* const buffers_;
  std::vector<bool> requires_grad_;               // Replica::requires_grad() before the step.
  std::vector<at::Tensor> state_, state_copies_;  // The tensors of Replica::state().
  bool has_state_ = false;                        // True if state_copies_ is of this step.
};

// Returns copies of the tensors.
std::vector<at::Tensor> Clone(const std::vector<at::Tensor>& tensors);

}  // namespace muster
