#include "common/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <map>
#include <utility>

#include "common/optim/update_rules.h"

namespace muster {
namespace {

using Tensors = std::vector<at::Tensor>;

enum class SlotsAre { kHere, kElsewhere };

class RuleOptimizer : public Optimizer {
 public:
  RuleOptimizer(const OptimizerSpec& spec, Tensors parameters, const std::vector<int>& groups,
                SlotsAre where)
      : spec_(spec),
        where_(where),
        parameters_(std::move(parameters)),
        slot_names_(SlotNames(spec.rule)),
        slots_(slot_names_.size()) {
    const at::NoGradGuard no_grad;
    for (size_t g = 0; g <= spec.groups.size(); ++g)
      rules_.push_back(MakeUpdateRule(spec.rule_of(static_cast<int>(g))));
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const int group = groups.empty() ? 0 : groups[i];
      const at::Tensor like = where == SlotsAre::kHere ? parameters_[i]
                                                       : at::empty_like(parameters_[i], at::kMeta,
                                                                        at::MemoryFormat::Preserve);
      for (size_t s = 0; s < slots_.size(); ++s) {
        slots_[s].push_back(InitialSlot(spec.rule_of(group), slot_names_[s], like));
      }
      CallOf(parameters_[i], group).members.push_back(i);
    }
  }

  void Update(const Tensors& gradients, double learning_rate) override {
    const at::NoGradGuard no_grad;
    TORCH_CHECK(gradients.size() == parameters_.size(), "an optimizer of ", parameters_.size(),
                " parameters got ", gradients.size(), " gradients");
    ClipGradients(gradients, spec_.clip);
    for (const Call& call : calls_) {
      UpdateLists lists;
      lists.slots.resize(slots_.size());
      for (const size_t i : call.members) {
        if (gradients[i].defined()) Append(i, gradients[i], &lists);
      }
      if (lists.parameters.empty()) continue;
      rules_[call.group]->Apply(lists, learning_rate * spec_.scale_of(call.group));
      // The fused kernels do not increment version counters. Without this, autograd would not
      // notice if a graph saved the old values.
      for (const at::Tensor& parameter : lists.parameters)
        parameter.unsafeGetTensorImpl()->bump_version();
    }
  }

  const Tensors& parameters() const override { return parameters_; }
  const std::vector<std::string>& slot_names() const override { return slot_names_; }
  const Tensors& slot(int s) const override { return slots_.at(s); }
  absl::StatusOr<std::unique_ptr<Optimizer>> WithParameters(Tensors parameters,
                                                            std::vector<int> groups) const override;
  std::string Describe() const override { return muster::Describe(spec_); }

 private:
  // The parameters of one kernel call: one group, device and dtype.
  struct Call {
    int group = 0;
    std::vector<size_t> members;
  };
  Call& CallOf(const at::Tensor& parameter, int group) {
    for (Call& call : calls_) {
      const at::Tensor& first = parameters_[call.members.front()];
      if (call.group == group && first.device() == parameter.device() &&
          first.scalar_type() == parameter.scalar_type()) {
        return call;
      }
    }
    return calls_.emplace_back(Call{group, {}});
  }

  void Append(size_t i, const at::Tensor& gradient, UpdateLists* lists) const {
    const at::Tensor& parameter = parameters_[i];
    TORCH_CHECK(gradient.sizes() == parameter.sizes(), "the gradient of parameter ", i,
                " has shape ", gradient.sizes(), ", the parameter ", parameter.sizes());
    lists->parameters.push_back(parameter);
    lists->gradients.push_back(
        SameLayout(parameter, gradient)
            ? gradient
            : at::empty_like(parameter, {}, at::MemoryFormat::Preserve).copy_(gradient));
    for (size_t s = 0; s < slots_.size(); ++s) lists->slots[s].push_back(slots_[s][i]);
  }

  const OptimizerSpec spec_;
  const SlotsAre where_;
  std::vector<std::unique_ptr<UpdateRule>> rules_;  // Indexed by group.
  const Tensors parameters_;
  const std::vector<std::string> slot_names_;
  std::vector<Tensors> slots_;  // Indexed by slot, then by parameter.
  std::vector<Call> calls_;
};

absl::Status CheckParameters(const Tensors& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (!parameter.defined() || !parameter.is_floating_point()) {
      return ProgramError(fmt::format("parameter {} of an optimizer is {}, not of a floating type",
                                      i, parameter.defined() ? parameter.toString() : "undefined"));
    }
    if (!parameter.is_non_overlapping_and_dense()) {
      return ProgramError(fmt::format(
          "parameter {} of an optimizer is a view with gaps or overlaps in memory: make it "
          "contiguous before it becomes a parameter",
          i));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RuleOptimizer>> Make(const OptimizerSpec& spec, Tensors parameters,
                                                    const std::vector<int>& groups,
                                                    SlotsAre slots) {
  MUSTER_RETURN_IF_ERROR(CheckParameters(parameters));
  TORCH_CHECK(groups.empty() || groups.size() == parameters.size(), groups.size(),
              " groups were given for ", parameters.size(), " parameters");
  return std::make_unique<RuleOptimizer>(spec, std::move(parameters), groups, slots);
}

absl::StatusOr<std::unique_ptr<Optimizer>> RuleOptimizer::WithParameters(
    Tensors parameters, std::vector<int> groups) const {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<RuleOptimizer> made,
                          Make(spec_, std::move(parameters), groups, where_));
  const at::NoGradGuard no_grad;
  std::map<const at::TensorImpl*, size_t> here;
  for (size_t i = 0; i < parameters_.size(); ++i)
    here.try_emplace(parameters_[i].unsafeGetTensorImpl(), i);
  for (size_t i = 0; i < made->parameters_.size(); ++i) {
    const auto found = here.find(made->parameters_[i].unsafeGetTensorImpl());
    if (found == here.end()) continue;
    for (size_t s = 0; s < slots_.size(); ++s) made->slots_[s][i].copy_(slots_[s][found->second]);
  }
  return made;
}

}  // namespace

bool SameLayout(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  }
  return a.scalar_type() == b.scalar_type();
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const Json& json, Tensors parameters,
                                                         std::vector<int> groups) {
  MUSTER_ASSIGN_OR_RETURN(OptimizerSpec spec, ParseOptimizer(json));
  return Make(spec, std::move(parameters), groups, SlotsAre::kHere);
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeServedOptimizer(const Json& json, Tensors parameters,
                                                               std::vector<int> groups) {
  MUSTER_ASSIGN_OR_RETURN(OptimizerSpec spec, ParseOptimizer(json));
  return Make(spec, std::move(parameters), groups, SlotsAre::kElsewhere);
}

}  // namespace muster
