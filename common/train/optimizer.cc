#include "common/train/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

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
  RuleOptimizer(std::unique_ptr<UpdateRule> rule, ClipOptions clip, Tensors parameters)
      : rule_(std::move(rule)),
        clip_(clip),
        parameters_(std::move(parameters)),
        slot_names_(rule_->SlotNames()),
        slots_(slot_names_.size()) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      for (size_t s = 0; s < slots_.size(); ++s) {
        slots_[s].push_back(rule_->InitialSlot(static_cast<int>(s), parameters_[i]));
      }
      GroupOf(parameters_[i]).push_back(i);
    }
  }

  void Update(const Tensors& gradients, double learning_rate) override {
    const at::NoGradGuard no_grad;
    TORCH_CHECK(gradients.size() == parameters_.size(), "an optimizer of ", parameters_.size(),
                " parameters got ", gradients.size(), " gradients");
    ClipGradients(gradients, clip_);
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
  std::string Describe() const override {
    std::string clip;
    if (clip_.clipvalue > 0) clip = fmt::format(", clipvalue={}", clip_.clipvalue);
    if (clip_.clipnorm > 0) clip = fmt::format(", clipnorm={}", clip_.clipnorm);
    if (clip_.global_clipnorm > 0)
      clip = fmt::format(", global_clipnorm={}", clip_.global_clipnorm);
    return rule_->Describe() + clip + ")";
  }

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

  const std::unique_ptr<UpdateRule> rule_;
  const ClipOptions clip_;
  const Tensors parameters_;
  const std::vector<std::string> slot_names_;
  std::vector<Tensors> slots_;               // by slot, then by parameter
  std::vector<std::vector<size_t>> groups_;  // parameters of one device and dtype
};

ClipOptions ReadClip(JsonObject& spec) {
  ClipOptions clip;
  int given = 0;
  for (const auto& [key, value] :
       {std::pair{"clipvalue", &clip.clipvalue}, std::pair{"clipnorm", &clip.clipnorm},
        std::pair{"global_clipnorm", &clip.global_clipnorm}}) {
    spec.Read(key, value);
    if (*value < 0) spec.Fail(key, fmt::format("must not be below 0, is {}", *value));
    if (*value > 0 && ++given > 1) {
      spec.Fail(key, "cannot be combined with another of clipvalue, clipnorm, global_clipnorm");
    }
  }
  return clip;
}

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

Json WithName(const Json& spec) { return spec.is_string() ? Json::object({{"name", spec}}) : spec; }

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const Json& spec, Tensors parameters) {
  const Json object = WithName(spec);
  JsonObject reader(object, "optimizer");
  std::string name;
  reader.Read("name", &name);
  std::unique_ptr<UpdateRule> rule = MakeUpdateRule(name, reader);
  if (rule == nullptr) {
    const std::string nearest = Nearest(name, UpdateRuleNames());
    reader.Fail("name", nearest.empty() || name.empty()
                            ? fmt::format("must be one of {}, is \"{}\"",
                                          fmt::join(UpdateRuleNames(), ", "), name)
                            : fmt::format("is \"{}\", did you mean \"{}\"?", name, nearest));
  }
  if (reader.Has("learning_rate")) {
    reader.Fail("learning_rate", "is not a key of an optimizer: set the job's \"learning_rate\"");
  }
  const ClipOptions clip = ReadClip(reader);
  MUSTER_RETURN_IF_ERROR(reader.Finish());
  MUSTER_RETURN_IF_ERROR(CheckParameters(parameters));
  return std::make_unique<RuleOptimizer>(std::move(rule), clip, std::move(parameters));
}

double DefaultLearningRate(const Json& optimizer_spec) {
  const Json object = WithName(optimizer_spec);
  return object.is_object() && object.value("name", Json()) == "sgd" ? 0.01 : 0.001;
}

}  // namespace muster
