// Update rules: what an optimizer does with a group of parameters. To add one: its spec in
// optimizer_spec.h, a class here, its kernel in common/push_pull/update_kernels.cc, a case in
// tests/unit/train_rules.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/push_pull/optimizer_spec.h"

namespace muster {

// The part of an update that one kernel call can do: dense parameters of one device and dtype that
// have a gradient, with gradients and slots of the same layout.
struct UpdateLists {
  std::vector<at::Tensor> parameters, gradients;
  std::vector<std::vector<at::Tensor>> slots;  // by slot, then by parameter
};

// Immutable: all state is in the slots.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // In place, with gradients off. Gradients may be overwritten. Never called with empty lists.
  virtual void Apply(UpdateLists& lists, double learning_rate) const = 0;
};

std::unique_ptr<UpdateRule> MakeUpdateRule(const RuleSpec& rule);
// Of SlotNames(rule), for a new optimizer; the parameter's layout and device.
at::Tensor InitialSlot(const RuleSpec& rule, const std::string& slot, const at::Tensor& parameter);

}  // namespace muster
