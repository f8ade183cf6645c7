// Update rules: the formulas by which an optimizer updates parameters and slots. A slot is the
// optimizer's state for a parameter, such as momentum. A new rule needs a spec in optimizer_spec.h,
// a class in update_rules.cc, a kernel in update_kernels.cc and a case in tests/unit/optim.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/optim/optimizer_spec.h"

namespace muster {

// The tensors of one kernel call. All parameters are dense, have a gradient, and have the same
// device and dtype. The gradient and the slots of a parameter have the parameter's strides.
struct UpdateLists {
  std::vector<at::Tensor> parameters, gradients;
  std::vector<std::vector<at::Tensor>> slots;  // Indexed by slot, then by parameter.
};

// A rule. It has no state, because the slots are in UpdateLists.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // Updates the parameters and slots in place. May overwrite the gradients. REQUIRES: autograd is
  // disabled (at::NoGradGuard), and the lists are not empty.
  virtual void Apply(UpdateLists& lists, double learning_rate) const = 0;
};

// Returns null for row-wise Adagrad, which cannot update dense parameters.
std::unique_ptr<UpdateRule> MakeUpdateRule(const RuleSpec& rule);
// Returns a new slot with initial values, on the device of `parameter`. The slot has the strides of
// `parameter`, except "step", which is a scalar. `slot` is one of SlotNames(rule).
at::Tensor InitialSlot(const RuleSpec& rule, const std::string& slot, const at::Tensor& parameter);

}  // namespace muster
