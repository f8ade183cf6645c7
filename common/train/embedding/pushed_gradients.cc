#include "common/train/embedding/pushed_gradients.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/optim/optimizer.h"

namespace muster {

PushedGradients::PushedGradients(ParameterExchange* exchange, int optimizer)
    : exchange_(exchange),
      optimizer_(optimizer),
      parameters_(exchange->parameters_of_[optimizer]),
      gradients_(parameters_.size()),
      fired_(parameters_.size()) {}

bool PushedGradients::whole() const { return exchange_->whole_ || exchange_->clips(optimizer_); }

void PushedGradients::Begin(const Reduction& reduction) {
  for (const int v : exchange_->variable_of_[optimizer_])
    if (v >= 0) exchange_->variables_[v].used = false;
  std::fill(gradients_.begin(), gradients_.end(), at::Tensor());
  const std::vector<ServedVariables::Owner>& owners = exchange_->served_.owners;
  for (size_t o = 0; o < owners.size(); ++o)
    if (owners[o].optimizer == optimizer_)
      exchange_->learning_rates_[o] = reduction.learning_rate * owners[o].scale;
  early_ = reduction.early && !whole();
  norm_wanted_ = reduction.norm;
  all_launched_ = false;
  for (const int c : exchange_->chunks_of_[optimizer_]) {
    exchange_->chunks_[c].launched = false;
    exchange_->chunks_[c].used = false;
  }
}

void PushedGradients::BeginBackward(bool last, bool overlap) {
  std::fill(fired_.begin(), fired_.end(), false);
  for (const int c : exchange_->chunks_of_[optimizer_])
    exchange_->chunks_[c].pending = static_cast<int>(exchange_->chunks_[c].variables.size());
  launching_ = last && early_ && overlap && !twice_;
}

void PushedGradients::OnGradient(int index) {
  const at::NoGradGuard no_grad;
  at::Tensor gradient = parameters_[index].grad();
  parameters_[index].mutable_grad().reset();
  const int v = exchange_->variable_of_[optimizer_][index];
  if (!gradient.defined() || v < 0) return;
  if (gradient.is_sparse()) gradient = gradient.to_dense();
  ParameterExchange::Variable& variable = exchange_->variables_[v];
  if (fired_[index]) {
    twice_ = true;
    for (const int c : variable.chunks)
      TORCH_CHECK(!exchange_->chunks_[c].launched, "a parameter of shape ",
                  parameters_[index].sizes(),
                  " got a second gradient in one backward pass after the first was pushed: a "
                  "custom autograd function runs a backward pass of its own in this step and did "
                  "not in earlier ones; let activation_checkpoint run it");
  }
  if (!whole()) {
    exchange_->Write(v, gradient, variable.used);
  } else if (variable.used) {
    gradients_[index].add_(gradient);
  } else {
    gradients_[index] = gradient;
  }
  if (fired_[index]) return;
  fired_[index] = variable.used = true;
  for (const int c : variable.chunks) {
    ParameterExchange::ChunkPlace& place = exchange_->chunks_[c];
    place.used = true;
    if (--place.pending == 0 && launching_) exchange_->Launch(c);
  }
}

std::vector<at::Tensor> PushedGradients::Written() const {
  if (whole()) return gradients_;
  std::vector<at::Tensor> written;
  for (const int v : exchange_->variable_of_[optimizer_]) {
    if (v < 0 || !exchange_->variables_[v].used) continue;
    for (const ParameterExchange::Part& part : exchange_->variables_[v].parts)
      written.push_back(part.view);
  }
  return written;
}

void PushedGradients::Scale(double factor) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : Written())
    if (gradient.defined()) gradient.mul_(factor);
}

bool PushedGradients::used(int index) const {
  const int v = exchange_->variable_of_[optimizer_][index];
  return v < 0 || exchange_->variables_[v].used;
}

void PushedGradients::LaunchAll(const at::Tensor& control) {
  const at::NoGradGuard no_grad;
  all_launched_ = true;
  if (norm_wanted_) norm_ = GradientNorm(Written());
  if (whole()) {
    ClipGradients(gradients_, exchange_->clips_[optimizer_]);
    for (size_t i = 0; i < gradients_.size(); ++i) {
      if (!gradients_[i].defined()) continue;
      exchange_->Write(exchange_->variable_of_[optimizer_][i], gradients_[i], /*add=*/false);
      gradients_[i] = at::Tensor();
    }
  }
  // Clears the variables without a gradient. No launched chunk has such a variable, because chunks
  // are launched with all their gradients.
  for (const int v : exchange_->variable_of_[optimizer_])
    if (v >= 0 && !exchange_->variables_[v].used) exchange_->Clear(v);
  for (const int c : exchange_->chunks_of_[optimizer_]) {
    const ParameterExchange::ChunkPlace& place = exchange_->chunks_[c];
    if (place.used && !place.launched) exchange_->Launch(c);
  }
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
