#include "common/train/exchange/pushed_gradients.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/optim/optimizer.h"

namespace muster {

namespace {

bool Clips(const ClipOptions& clip) {
  return clip.clipvalue > 0 || clip.clipnorm > 0 || clip.global_clipnorm > 0;
}

}  // namespace

PushedGradients::PushedGradients(ParameterExchange* exchange, DenseVariables* dense,
                                 const Options& options)
    : exchange_(exchange),
      dense_(dense),
      optimizer_(options.optimizer),
      clip_(options.clip),
      whole_(options.float16 || Clips(clip_)),
      parameters_(dense->parameters(optimizer_)),
      variables_(dense->variables(optimizer_)),
      gradients_(parameters_.size()),
      fired_(parameters_.size()) {}

void PushedGradients::Begin(const Reduction& reduction) {
  std::fill(gradients_.begin(), gradients_.end(), at::Tensor());
  exchange_->SetLearningRate(optimizer_, reduction.learning_rate);
  early_ = reduction.early && !whole_;
  norm_wanted_ = reduction.norm;
  all_launched_ = false;
  dense_->BeginReduction(optimizer_);
}

void PushedGradients::BeginBackward(bool last, bool overlap) {
  std::fill(fired_.begin(), fired_.end(), false);
  dense_->BeginBackward(optimizer_);
  launching_ = last && early_ && overlap && !twice_;
}

void PushedGradients::OnGradient(int index) {
  const at::NoGradGuard no_grad;
  const at::Tensor gradient = TakeGradient(parameters_[index]);
  const int v = variables_[index];
  if (!gradient.defined() || v < 0) return;
  if (fired_[index]) {
    twice_ = true;
    TORCH_CHECK(!dense_->launched(v), "a parameter of shape ", parameters_[index].sizes(),
                " got a second gradient in one backward pass after the first was pushed: a "
                "custom autograd function runs a backward pass of its own in this step and did "
                "not in earlier ones; let activation_checkpoint run it");
  }
  if (!whole_) {
    dense_->Write(v, gradient, dense_->used(v));
  } else {
    TORCH_CHECK(gradients_[index].defined() == dense_->used(v), "two parameters of shape ",
                parameters_[index].sizes(), " share their memory");
    AddGradient(gradient, fired_[index], &gradients_[index]);
  }
  if (fired_[index]) return;
  fired_[index] = true;
  for (const int c : dense_->Complete(v))
    if (launching_) exchange_->Launch(c);
}

void PushedGradients::EndBackward() {
  const at::NoGradGuard no_grad;
  launching_ = false;
  for (size_t i = 0; whole_ && i < gradients_.size(); ++i)
    if (fired_[i] && gradients_[i].defined()) OwnMemory(&gradients_[i]);
}

std::vector<at::Tensor> PushedGradients::Written() const {
  return whole_ ? gradients_ : dense_->Written(optimizer_);
}

void PushedGradients::Scale(double factor) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : Written())
    if (gradient.defined()) gradient.mul_(factor);
}

bool PushedGradients::used(int index) const {
  return variables_[index] < 0 || dense_->used(variables_[index]);
}

void PushedGradients::LaunchAll(const at::Tensor& control) {
  const at::NoGradGuard no_grad;
  all_launched_ = true;
  if (norm_wanted_) norm_ = GradientNorm(Written());
  if (whole_) {
    ClipGradients(gradients_, clip_);
    for (size_t i = 0; i < gradients_.size(); ++i) {
      if (!gradients_[i].defined()) continue;
      dense_->Write(variables_[i], gradients_[i], /*add=*/false);
      gradients_[i] = at::Tensor();
    }
  }
  for (const int c : dense_->CompleteAll(optimizer_)) exchange_->Launch(c);
  if (control.defined()) exchange_->LaunchRest();
}

absl::Status PushedGradients::Finish(at::Tensor* control) {
  if (!all_launched_) LaunchAll(*control);
  return exchange_->Wait();
}

void PushedGradients::Cancel() {
  launching_ = false;
  std::fill(gradients_.begin(), gradients_.end(), at::Tensor());
  (void)exchange_->Wait();
}

}  // namespace muster
