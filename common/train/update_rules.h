// Update rules: what an optimizer does with a group of parameters. To add one: a class here, its
// name and keys in MakeUpdateRule, a case in tests/unit/train_rules.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/json.h"

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
  virtual std::vector<std::string> SlotNames() const = 0;
  virtual at::Tensor InitialSlot(int slot, const at::Tensor& parameter) const = 0;
  // In place, with gradients off. Gradients may be overwritten. Never called with empty lists.
  virtual void Apply(UpdateLists& lists, double learning_rate) const = 0;
  virtual std::string Describe() const = 0;  // "sgd(momentum=0.9"; the caller closes it
};

const std::vector<std::string>& UpdateRuleNames();
// Reads the rule's hyperparameters from `spec`, which the caller finishes. nullptr for an unknown
// name.
std::unique_ptr<UpdateRule> MakeUpdateRule(const std::string& name, JsonObject& spec);

}  // namespace muster
