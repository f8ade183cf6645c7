#include "common/optim/update_rules.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_fused_adagrad.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

namespace muster {
namespace {

using Tensors = std::vector<at::Tensor>;

// Returns a step counter for the fused kernels: float32, on the parameter's device. A float32
// counter stays at 2^24, but the bias corrections are 1 long before.
at::Tensor StepCounter(const at::Tensor& parameter) {
  return at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(parameter.device()));
}

class Sgd : public UpdateRule {
 public:
  explicit Sgd(const SgdSpec& spec) : spec_(spec) {}
  void Apply(UpdateLists& lists, double learning_rate) const override {
    const auto& [momentum, weight_decay, nesterov] = spec_;
    if (momentum == 0 && weight_decay == 0) {
      // This is a single addition. The fused kernel would start all threads even for a few
      // elements.
      at::_foreach_add_(lists.parameters, lists.gradients, -learning_rate);
      return;
    }
    // Without dampening, the first step needs no special case: the momentum buffer is 0.
    at::_fused_sgd_(lists.parameters, lists.gradients, momentum == 0 ? Tensors{} : lists.slots[0],
                    weight_decay, momentum, learning_rate, /*dampening=*/0, nesterov,
                    /*maximize=*/false, /*is_first_step=*/false);
  }

 private:
  const SgdSpec spec_;
};

class Adam : public UpdateRule {
 public:
  explicit Adam(const AdamSpec& spec) : spec_(spec) {}
  enum Slot { kExpAvg = 0, kExpAvgSq, kStep, kMaxExpAvgSq };
  void Apply(UpdateLists& lists, double learning_rate) const override {
    at::_foreach_add_(lists.slots[kStep], 1);
    const auto update = [&](auto kernel) {
      kernel(lists.parameters, lists.gradients, lists.slots[kExpAvg], lists.slots[kExpAvgSq],
             spec_.amsgrad ? lists.slots[kMaxExpAvgSq] : Tensors{}, lists.slots[kStep],
             learning_rate, spec_.beta1, spec_.beta2, spec_.weight_decay, spec_.epsilon,
             spec_.amsgrad, /*maximize=*/false);
    };
    if (spec_.decoupled) {
      update([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      update([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    }
  }

 private:
  const AdamSpec spec_;
};

class Adagrad : public UpdateRule {
 public:
  explicit Adagrad(const AdagradSpec& spec) : spec_(spec) {}
  void Apply(UpdateLists& lists, double learning_rate) const override {
    // The kernel uses its step counters only to decay the learning rate, which a schedule does
    // instead.
    const Tensors steps(lists.parameters.size(), StepCounter(lists.parameters[0]).fill_(1));
    at::_fused_adagrad_(lists.parameters, lists.gradients, lists.slots[0], steps, learning_rate,
                        /*lr_decay=*/0, spec_.weight_decay, spec_.epsilon, /*maximize=*/false);
  }

 private:
  const AdagradSpec spec_;
};

// RMSprop from foreach operations. LibTorch has no fused kernel for it.
class RmsProp : public UpdateRule {
 public:
  explicit RmsProp(const RmsPropSpec& spec) : spec_(spec) {}
  void Apply(UpdateLists& lists, double learning_rate) const override {
    const auto& [rho, momentum, epsilon, weight_decay, centered] = spec_;
    const Tensors& gradients = lists.gradients;
    const Tensors& square_avg = lists.slots[0];
    if (weight_decay != 0) at::_foreach_add_(gradients, lists.parameters, weight_decay);
    at::_foreach_mul_(square_avg, rho);
    at::_foreach_addcmul_(square_avg, gradients, gradients, 1 - rho);
    Tensors denominator;
    if (centered) {
      const Tensors& grad_avg = lists.slots[1];
      at::_foreach_mul_(grad_avg, rho);
      at::_foreach_add_(grad_avg, gradients, 1 - rho);
      denominator = at::_foreach_addcmul(square_avg, grad_avg, grad_avg, -1);
      at::_foreach_clamp_min_(denominator, 0);  // Rounding may make a variance negative.
      at::_foreach_sqrt_(denominator);
    } else {
      denominator = at::_foreach_sqrt(square_avg);
    }
    at::_foreach_add_(denominator, epsilon);
    if (momentum > 0) {
      const Tensors& buffer = lists.slots.back();
      at::_foreach_mul_(buffer, momentum);
      at::_foreach_addcdiv_(buffer, gradients, denominator);
      at::_foreach_add_(lists.parameters, buffer, -learning_rate);
    } else {
      at::_foreach_addcdiv_(lists.parameters, gradients, denominator, -learning_rate);
    }
  }

 private:
  const RmsPropSpec spec_;
};

// FTRL, in the order of Keras's formulas. LibTorch has no fused kernel for it.
class Ftrl : public UpdateRule {
 public:
  explicit Ftrl(const FtrlSpec& spec) : spec_(spec) {}
  void Apply(UpdateLists& lists, double learning_rate) const override {
    if (!FtrlUpdates(learning_rate)) return;
    for (size_t i = 0; i < lists.parameters.size(); ++i)
      ApplyOne(lists.parameters[i], lists.gradients[i], lists.slots[0][i], lists.slots[1][i],
               learning_rate);
  }

 private:
  void ApplyOne(const at::Tensor& parameter, const at::Tensor& gradient,
                const at::Tensor& accumulator, const at::Tensor& linear,
                double learning_rate) const {
    // FTRL subtracts nearly equal numbers. In 16 bits, no significant digits would remain.
    const at::ScalarType wide = parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor p = parameter.to(wide), g = gradient.to(wide), before = accumulator.to(wide);
    const at::Tensor after = before + g * g, root = at::sqrt(after);
    const at::Tensor sum = linear.to(wide) + g + p * (2 * spec_.l2_shrinkage) -
                           (root - at::sqrt(before)) * p / learning_rate;
    const double l2 = spec_.l2 + spec_.beta / (2 * learning_rate);
    parameter.copy_((at::clamp(sum, -spec_.l1, spec_.l1) - sum) / (root / learning_rate + 2 * l2));
    accumulator.copy_(after);
    linear.copy_(sum);
  }

  const FtrlSpec spec_;
};

std::unique_ptr<UpdateRule> Make(const SgdSpec& spec) { return std::make_unique<Sgd>(spec); }
std::unique_ptr<UpdateRule> Make(const AdamSpec& spec) { return std::make_unique<Adam>(spec); }
std::unique_ptr<UpdateRule> Make(const AdagradSpec& spec) {
  return std::make_unique<Adagrad>(spec);
}
std::unique_ptr<UpdateRule> Make(const RmsPropSpec& spec) {
  return std::make_unique<RmsProp>(spec);
}
std::unique_ptr<UpdateRule> Make(const FtrlSpec& spec) { return std::make_unique<Ftrl>(spec); }
// Row-wise Adagrad is only for tables. MakeRules has already refused it for models.
std::unique_ptr<UpdateRule> Make(const RowwiseAdagradSpec&) { return nullptr; }

}  // namespace

at::Tensor InitialSlot(const RuleSpec& rule, const std::string& slot, const at::Tensor& parameter) {
  if (slot == "step") return StepCounter(parameter);
  return at::full_like(parameter, InitialSlotValue(rule, slot), {}, at::MemoryFormat::Preserve);
}

std::unique_ptr<UpdateRule> MakeUpdateRule(const RuleSpec& rule) {
  return std::visit([](const auto& spec) { return Make(spec); }, rule);
}

}  // namespace muster
