// Update rules: how an optimizer updates a group of parameters. To add one: its spec in
// optimizer_spec.h, a class here, its kernel in common/optim/update_kernels.cc, a case in
// tests/unit/optim.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/optim/optimizer_spec.h"

namespace muster {

// The tensors of one kernel call: dense parameters of one device and dtype that have a gradient.
// Gradients and slots have the parameters' layout.
struct UpdateLists {
  std::vector<at::Tensor> parameters, gradients;
  std::vector<std::vector<at::Tensor>> slots;  // Indexed by slot, then by parameter.
};

// Immutable: all state is in the slots.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // Updates in place, with gradients off. May overwrite gradients. Never called with empty lists.
  virtual void Apply(UpdateLists& lists, double learning_rate) const = 0;
};

std::unique_ptr<UpdateRule> MakeUpdateRule(const RuleSpec& rule);
// Returns a new slot with the parameter's layout and device. `slot` is one of SlotNames(rule).
at::Tensor InitialSlot(const RuleSpec& rule, const std::string& slot, const at::Tensor& parameter);

}  // namespace muster
