#include "common/train/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <utility>

#include "common/train/update_rules.h"

namespace muster {
namespace {

using Tensors = std::vector<at::Tensor>;

// The fused kernels walk the memory of all lists side by side, so strides must agree (those of
// dimensions of size 1 mean nothing).
bool SameLayout(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  }
  return a.scalar_type() == b.scalar_type();
}

class RuleOptimizer : public Optimizer {
 public:
  RuleOptimizer(const OptimizerSpec& spec, Tensors parameters)
      : spec_(spec),
        rule_(MakeUpdateRule(spec.rule)),
        parameters_(std::move(parameters)),
        slot_names_(SlotNames(spec.rule)),
        slots_(slot_names_.size()) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      for (size_t s = 0; s < slots_.size(); ++s) {
        slots_[s].push_back(InitialSlot(spec.rule, slot_names_[s], parameters_[i]));
      }
      GroupOf(parameters_[i]).push_back(i);
    }
  }

  void Update(const Tensors& gradients, double learning_rate) override {
    const at::NoGradGuard no_grad;
    TORCH_CHECK(gradients.size() == parameters_.size(), "an optimizer of ", parameters_.size(),
                " parameters got ", gradients.size(), " gradients");
    ClipGradients(gradients, spec_.clip);
    for (const std::vector<size_t>& group : groups_) {
      UpdateLists lists;
      lists.slots.resize(slots_.size());
      for (const size_t i : group) {
        if (gradients[i].defined()) Append(i, gradients[i], &lists);
      }
      if (!lists.parameters.empty()) rule_->Apply(lists, learning_rate);
    }
  }

  const Tensors& parameters() const override { return parameters_; }
  const std::vector<std::string>& slot_names() const override { return slot_names_; }
  const Tensors& slot(int s) const override { return slots_.at(s); }
  std::string Describe() const override { return muster::Describe(spec_); }

 private:
  std::vector<size_t>& GroupOf(const at::Tensor& parameter) {
    for (std::vector<size_t>& group : groups_) {
      const at::Tensor& first = parameters_[group.front()];
      if (first.device() == parameter.device() && first.scalar_type() == parameter.scalar_type()) {
        return group;
      }
    }
    return groups_.emplace_back();
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
  const std::unique_ptr<UpdateRule> rule_;
  const Tensors parameters_;
  const std::vector<std::string> slot_names_;
  std::vector<Tensors> slots_;               // by slot, then by parameter
  std::vector<std::vector<size_t>> groups_;  // parameters of one device and dtype
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

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const Json& json, Tensors parameters) {
  MUSTER_ASSIGN_OR_RETURN(OptimizerSpec spec, ParseOptimizer(json));
  MUSTER_RETURN_IF_ERROR(CheckParameters(parameters));
  return std::make_unique<RuleOptimizer>(spec, std::move(parameters));
}

}  // namespace muster
