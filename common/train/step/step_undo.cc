#include "common/train/step/step_undo.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

namespace muster {

std::vector<at::Tensor> Clone(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& t : tensors) copies.push_back(t.detach().clone());
  return copies;
}

namespace {

void CopyValues(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < to.size(); ++i) to[i].detach().copy_(from[i]);
}

}  // namespace

void StepUndo::Begin() {
  buffers_->Keep();
  requires_grad_ = replica_->requires_grad();
}

void StepUndo::KeepState() {
  if (has_state_) return;
  // Makes the list again, because slots may have been added since the previous step.
  state_ = replica_->state();
  if (state_copies_.size() != state_.size()) {
    state_copies_ = Clone(state_);
  } else {
    CopyValues(state_, state_copies_);
  }
  // If a rule is replaced by one for more parameters, its slots must stay for a roll-back.
  replica_->optimizer_set().RetainRules(true);
  has_state_ = true;
}

void StepUndo::PutBack(bool keeps_flags) {
  for (NamedOptimizer& optimizer : replica_->optimizers()) optimizer.gradients->Cancel();
  // The first minimize() made state_copies_ after the forward pass had changed the buffers. The
  // copies in buffers_ are older and are therefore restored last.
  if (has_state_) CopyValues(state_copies_, state_);
  buffers_->PutBack();
  has_state_ = false;
  replica_->optimizer_set().PutBackRules();
  replica_->optimizer_set().RetainRules(false);
  if (!keeps_flags) replica_->set_requires_grad(requires_grad_);
}

}  // namespace muster
