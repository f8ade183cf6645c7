// Update rules: the formulas by which an optimizer updates a group of parameters. A new rule needs
// a spec in optimizer_spec.h, a class in update_rules.cc, a kernel in update_kernels.cc and a case
// in tests/unit/optim.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/optim/optimizer_spec.h"

namespace muster {

// The tensors of one kernel call. All parameters are dense, have a gradient, and share one device
// and dtype. Gradients and slots have the parameters' layout.
struct UpdateLists {
  std::vector<at::Tensor> parameters, gradients;
  std::vector<std::vector<at::Tensor>> slots;  // Indexed by slot, then by parameter.
};

// A rule without state of its own: the state is in the slots.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // Updates the parameters and slots in place. May overwrite the gradients. REQUIRES: gradient mode
  // is off, and the lists are not empty.
  virtual void Apply(UpdateLists& lists, double learning_rate) const = 0;
};

// Returns null for row-wise Adagrad, which has no rule for dense parameters.
std::unique_ptr<UpdateRule> MakeUpdateRule(const RuleSpec& rule);
// Returns a new slot with its initial values, and with the parameter's layout and device. `slot` is
// one of SlotNames(rule).
at::Tensor InitialSlot(const RuleSpec& rule, const std::string& slot, const at::Tensor& parameter);

}  // namespace muster
