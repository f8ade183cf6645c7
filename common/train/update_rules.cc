#include "common/train/update_rules.h"

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
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>

namespace muster {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor ZerosLike(const at::Tensor& parameter) {
  return at::full_like(parameter, 0, {}, at::MemoryFormat::Preserve);
}

// A step counter as the fused kernels want it: float32, on the parameter's device. It stops
// counting at 2^24, where the bias corrections have long been 1.
at::Tensor StepCounter(const at::Tensor& parameter) {
  return at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(parameter.device()));
}

class Sgd : public UpdateRule {
 public:
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;

  std::vector<std::string> SlotNames() const override {
    return momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum_buffer"};
  }
  at::Tensor InitialSlot(int, const at::Tensor& parameter) const override {
    return ZerosLike(parameter);
  }
  void Apply(UpdateLists& lists, double learning_rate) const override {
    if (momentum == 0 && weight_decay == 0) {
      // One addition, with nothing to fuse; the fused kernel would start all threads even for a
      // handful of elements.
      at::_foreach_add_(lists.parameters, lists.gradients, -learning_rate);
      return;
    }
    // From a zero buffer the first step needs no case of its own, as there is no dampening.
    at::_fused_sgd_(lists.parameters, lists.gradients, momentum == 0 ? Tensors{} : lists.slots[0],
                    weight_decay, momentum, learning_rate, /*dampening=*/0, nesterov,
                    /*maximize=*/false, /*is_first_step=*/false);
  }
  std::string Describe() const override {
    return fmt::format("sgd(momentum={}, nesterov={}, weight_decay={}", momentum, nesterov,
                       weight_decay);
  }
};

class Adam : public UpdateRule {
 public:
  explicit Adam(bool is_decoupled) : decoupled(is_decoupled) {}

  const bool decoupled;  // AdamW
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-7;
  double weight_decay = decoupled ? 0.004 : 0;
  bool amsgrad = false;

  enum Slot { kExpAvg = 0, kExpAvgSq, kStep, kMaxExpAvgSq };
  std::vector<std::string> SlotNames() const override {
    std::vector<std::string> names = {"exp_avg", "exp_avg_sq", "step"};
    if (amsgrad) names.push_back("max_exp_avg_sq");
    return names;
  }
  at::Tensor InitialSlot(int slot, const at::Tensor& parameter) const override {
    return slot == kStep ? StepCounter(parameter) : ZerosLike(parameter);
  }
  void Apply(UpdateLists& lists, double learning_rate) const override {
    at::_foreach_add_(lists.slots[kStep], 1);
    const auto update = [&](auto kernel) {
      kernel(lists.parameters, lists.gradients, lists.slots[kExpAvg], lists.slots[kExpAvgSq],
             amsgrad ? lists.slots[kMaxExpAvgSq] : Tensors{}, lists.slots[kStep], learning_rate,
             beta1, beta2, weight_decay, epsilon, amsgrad, /*maximize=*/false);
    };
    if (decoupled) {
      update([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      update([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    }
  }
  std::string Describe() const override {
    return fmt::format("{}(beta1={}, beta2={}, epsilon={}, weight_decay={}, amsgrad={}",
                       decoupled ? "adamw" : "adam", beta1, beta2, epsilon, weight_decay, amsgrad);
  }
};

class Adagrad : public UpdateRule {
 public:
  double initial_accumulator_value = 0.1, epsilon = 1e-7, weight_decay = 0;

  std::vector<std::string> SlotNames() const override { return {"sum"}; }
  at::Tensor InitialSlot(int, const at::Tensor& parameter) const override {
    return at::full_like(parameter, initial_accumulator_value, {}, at::MemoryFormat::Preserve);
  }
  void Apply(UpdateLists& lists, double learning_rate) const override {
    // The kernel uses its step counters for a decay of its own only, which schedules do here.
    const Tensors steps(lists.parameters.size(), StepCounter(lists.parameters[0]).fill_(1));
    at::_fused_adagrad_(lists.parameters, lists.gradients, lists.slots[0], steps, learning_rate,
                        /*lr_decay=*/0, weight_decay, epsilon, /*maximize=*/false);
  }
  std::string Describe() const override {
    return fmt::format("adagrad(initial_accumulator_value={}, epsilon={}, weight_decay={}",
                       initial_accumulator_value, epsilon, weight_decay);
  }
};

// LibTorch has no fused kernel for RMSprop.
class RmsProp : public UpdateRule {
 public:
  double rho = 0.9, momentum = 0, epsilon = 1e-7, weight_decay = 0;
  bool centered = false;

  std::vector<std::string> SlotNames() const override {
    std::vector<std::string> names = {"square_avg"};
    if (centered) names.push_back("grad_avg");
    if (momentum > 0) names.push_back("momentum_buffer");
    return names;
  }
  at::Tensor InitialSlot(int, const at::Tensor& parameter) const override {
    return ZerosLike(parameter);
  }
  void Apply(UpdateLists& lists, double learning_rate) const override {
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
      at::_foreach_clamp_min_(denominator, 0);  // a variance that rounding made negative
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
  std::string Describe() const override {
    return fmt::format("rmsprop(rho={}, momentum={}, epsilon={}, centered={}, weight_decay={}", rho,
                       momentum, epsilon, centered, weight_decay);
  }
};

// A hyperparameter in [0, limit), or not below 0 without one.
void ReadFactor(JsonObject& spec, const std::string& key, double* out, double limit = INFINITY) {
  spec.Read(key, out);
  if (*out >= 0 && *out < limit) return;
  spec.Fail(key, std::isinf(limit) ? fmt::format("must not be below 0, is {}", *out)
                                   : fmt::format("must be in [0, {}), is {}", limit, *out));
}

std::unique_ptr<UpdateRule> MakeSgd(JsonObject& spec) {
  auto rule = std::make_unique<Sgd>();
  ReadFactor(spec, "momentum", &rule->momentum, 1);
  spec.Read("nesterov", &rule->nesterov);
  ReadFactor(spec, "weight_decay", &rule->weight_decay);
  if (rule->nesterov && rule->momentum == 0) spec.Fail("nesterov", "needs a momentum above 0");
  return rule;
}

std::unique_ptr<UpdateRule> MakeAdam(JsonObject& spec, bool decoupled) {
  auto rule = std::make_unique<Adam>(decoupled);
  ReadFactor(spec, "beta1", &rule->beta1, 1);
  ReadFactor(spec, "beta2", &rule->beta2, 1);
  ReadFactor(spec, "epsilon", &rule->epsilon);
  ReadFactor(spec, "weight_decay", &rule->weight_decay);
  spec.Read("amsgrad", &rule->amsgrad);
  return rule;
}

std::unique_ptr<UpdateRule> MakeAdagrad(JsonObject& spec) {
  auto rule = std::make_unique<Adagrad>();
  ReadFactor(spec, "initial_accumulator_value", &rule->initial_accumulator_value);
  ReadFactor(spec, "epsilon", &rule->epsilon);
  ReadFactor(spec, "weight_decay", &rule->weight_decay);
  return rule;
}

std::unique_ptr<UpdateRule> MakeRmsProp(JsonObject& spec) {
  auto rule = std::make_unique<RmsProp>();
  ReadFactor(spec, "rho", &rule->rho, 1);
  ReadFactor(spec, "momentum", &rule->momentum, 1);
  ReadFactor(spec, "epsilon", &rule->epsilon);
  ReadFactor(spec, "weight_decay", &rule->weight_decay);
  spec.Read("centered", &rule->centered);
  return rule;
}

}  // namespace

const std::vector<std::string>& UpdateRuleNames() {
  static const std::vector<std::string> names = {"sgd", "adam", "adamw", "adagrad", "rmsprop"};
  return names;
}

std::unique_ptr<UpdateRule> MakeUpdateRule(const std::string& name, JsonObject& spec) {
  if (name == "sgd") return MakeSgd(spec);
  if (name == "adam") return MakeAdam(spec, /*decoupled=*/false);
  if (name == "adamw") return MakeAdam(spec, /*decoupled=*/true);
  if (name == "adagrad") return MakeAdagrad(spec);
  if (name == "rmsprop") return MakeRmsProp(spec);
  return nullptr;
}

}  // namespace muster
