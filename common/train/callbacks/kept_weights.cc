#include "common/train/callbacks/kept_weights.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

namespace muster {

void KeptWeights::Keep(const std::string& callback) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor>& kept = kept_[callback];
  for (size_t i = 0; i < own_.size(); ++i) {
    const at::Tensor own = own_[i].second.detach();
    if (i == kept.size()) {
      kept.push_back(own.clone());
    } else {
      kept[i].copy_(own);
    }
  }
}

void KeptWeights::PutBack(const std::string& callback) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor>& kept = kept_.at(callback);
  for (size_t i = 0; i < own_.size(); ++i) own_[i].second.detach().copy_(kept[i]);
}

void KeptWeights::Swap(const std::string& callback) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor>& kept = kept_.at(callback);
  for (size_t i = 0; i < own_.size(); ++i) {
    const at::Tensor own = own_[i].second.detach(), before = own.clone();
    own.copy_(kept[i]);
    kept[i].copy_(before);
  }
}

void KeptWeights::Average(const std::string& callback, double decay) {
  if (!Has(callback)) return Keep(callback);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor>& kept = kept_.at(callback);
  for (size_t i = 0; i < own_.size(); ++i) {
    const at::Tensor own = own_[i].second.detach();
    // Buffers are statistics of the current weights, so they are not averaged.
    if (own_[i].second.requires_grad() && own.is_floating_point()) {
      kept[i].mul_(decay).add_(own, 1 - decay);
    } else {
      kept[i].copy_(own);
    }
  }
}

std::vector<at::Tensor> KeptWeights::Of(const std::set<std::string>& callbacks) {
  std::vector<at::Tensor> all;
  for (const std::string& callback : callbacks) {
    if (!Has(callback)) Keep(callback);
    const std::vector<at::Tensor>& kept = kept_.at(callback);
    all.insert(all.end(), kept.begin(), kept.end());
  }
  return all;
}

void KeptWeights::Only(const std::set<std::string>& callbacks) {
  std::erase_if(kept_, [&](const auto& kept) { return !callbacks.contains(kept.first); });
}

std::set<std::string> KeptWeights::callbacks() const {
  std::set<std::string> names;
  for (const auto& [callback, kept] : kept_) names.insert(callback);
  return names;
}

KeptWeights::NamedTensors KeptWeights::Of(const std::string& callback) const {
  NamedTensors all;
  const std::vector<at::Tensor>& kept = kept_.at(callback);
  for (size_t i = 0; i < own_.size(); ++i) all.emplace_back(own_[i].first, kept[i]);
  return all;
}

}  // namespace muster
