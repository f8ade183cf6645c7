#include "common/train/pushed_gradients.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "common/train/optimizer.h"

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
      exchange_->push_.learning_rates[o] = reduction.learning_rate * owners[o].scale;
  early_ = reduction.early && !whole();
  for (const int c : exchange_->chunks_of_[optimizer_]) {
    exchange_->chunks_[c].launched = false;
    exchange_->chunks_[c].used = false;
  }
}

void PushedGradients::BeginBackward(bool last) {
  std::fill(fired_.begin(), fired_.end(), false);
  for (const int c : exchange_->chunks_of_[optimizer_])
    exchange_->chunks_[c].pending = static_cast<int>(exchange_->chunks_[c].variables.size());
  launching_ = last && early_;
}

void PushedGradients::OnGradient(int index) {
  const at::NoGradGuard no_grad;
  at::Tensor gradient = parameters_[index].grad();
  parameters_[index].mutable_grad().reset();
  const int v = exchange_->variable_of_[optimizer_][index];
  if (!gradient.defined() || fired_[index] || v < 0) return;
  if (gradient.is_sparse()) gradient = gradient.to_dense();
  ParameterExchange::Variable& variable = exchange_->variables_[v];
  if (!whole()) {
    exchange_->Write(v, gradient, variable.used);
  } else if (variable.used) {
    gradients_[index].add_(gradient);
  } else {
    gradients_[index] = gradient;
  }
  fired_[index] = variable.used = true;
  for (const int c : variable.chunks) {
    ParameterExchange::ChunkPlace& place = exchange_->chunks_[c];
    place.used = true;
    if (--place.pending == 0 && launching_) exchange_->Launch(c);
  }
}

absl::Status PushedGradients::Finish(at::Tensor* control) {
  const at::NoGradGuard no_grad;
  if (whole()) {
    ClipGradients(gradients_, exchange_->clips_[optimizer_]);
    for (size_t i = 0; i < gradients_.size(); ++i) {
      if (!gradients_[i].defined()) continue;
      exchange_->Write(exchange_->variable_of_[optimizer_][i], gradients_[i], /*add=*/false);
      gradients_[i] = at::Tensor();
    }
  }
  // A chunk that was launched has all its gradients, so these lie in none of those.
  for (const int v : exchange_->variable_of_[optimizer_])
    if (v >= 0 && !exchange_->variables_[v].used) exchange_->Clear(v);
  const bool shares = exchange_->turn_.shares > 0;
  for (const int c : exchange_->chunks_of_[optimizer_]) {
    const ParameterExchange::ChunkPlace& place = exchange_->chunks_[c];
    if (place.launched) continue;
    if (place.used) {
      exchange_->Launch(c);
    } else if (shares) {
      exchange_->Launch(c, ps::PushPullClient::What::kNothing);
    }
  }
  if (control->defined()) exchange_->LaunchRest();
  return exchange_->Wait();
}

void PushedGradients::Cancel() {
  launching_ = false;
  std::fill(gradients_.begin(), gradients_.end(), at::Tensor());
  (void)exchange_->Wait();
}

}  // namespace muster
