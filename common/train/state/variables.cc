#include "common/train/state/variables.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace muster {
namespace {

using push_pull::VariablePart;
using push_pull::VariableSpec;

// Returns true if the rows of the first dimension are contiguous and without gaps between them.
bool FirstOutermost(const at::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) return false;
  return tensor.dim() == 0 || tensor.size(0) <= 1 ||
         tensor.stride(0) * tensor.size(0) == tensor.numel();
}

std::vector<int64_t> OrderOf(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return {};
  std::vector<int64_t> order(tensor.dim());
  for (int64_t d = 0; d < tensor.dim(); ++d) order[d] = d;
  std::stable_sort(order.begin() + 1, order.end(),
                   [&](int64_t a, int64_t b) { return tensor.stride(a) > tensor.stride(b); });
  return order;
}

// Converts the memory of the tensor in place. All references to the tensor see the same values.
void MakeFirstOutermost(const at::Tensor& tensor) {
  if (FirstOutermost(tensor)) return;
  const at::NoGradGuard no_grad;
  tensor.set_data(tensor.detach().clone(at::MemoryFormat::Contiguous));
}

class Collector {
 public:
  explicit Collector(ServedVariables* served) : served_(served) {}

  absl::Status Add(const std::string& name, const at::Tensor& tensor, int optimizer, int together) {
    if (tensor.scalar_type() != at::kFloat) {
      return ProgramError(
          fmt::format("{} is of type {}: parameter servers hold float32 only; keep the model in "
                      "float32 (\"precision\" computes in another type)",
                      name, c10::toString(tensor.scalar_type())));
    }
    MakeFirstOutermost(tensor);
    seen_.insert(tensor.unsafeGetTensorImpl());
    VariableSpec spec{name, tensor.sizes().vec(), optimizer, OrderOf(tensor)};
    spec.together = together;
    served_->specs.push_back(std::move(spec));
    served_->tensors.push_back(tensor.detach());
    return absl::OkStatus();
  }
  int size() const { return static_cast<int>(served_->specs.size()); }
  bool Has(const at::Tensor& tensor) const { return seen_.contains(tensor.unsafeGetTensorImpl()); }

 private:
  ServedVariables* const served_;
  std::set<const at::TensorImpl*> seen_;
};

// Adds the parameters of one optimizer. `first` is the index of the served optimizer for parameters
// without a group. Those for the groups follow it.
absl::Status AddParameters(const NamedOptimizer& optimizer, const OptimizerSpec& spec, int first,
                           Collector* collector) {
  const std::vector<at::Tensor>& parameters = optimizer.rule->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (collector->Has(parameters[i])) {
      return ProgramError(
          fmt::format("{} belongs to optimizer \"{}\" and to another one: on parameter servers "
                      "each parameter has one optimizer",
                      optimizer.parameter_names[i], optimizer.name));
    }
    const int group = optimizer.groups[i];
    const int together = ZeroGradientIsNone(spec.rule_of(group)) ? 0 : 1 + collector->size();
    MUSTER_RETURN_IF_ERROR(
        collector->Add(optimizer.parameter_names[i], parameters[i], first + group, together));
  }
  // Slots must have the layout of their parameters.
  for (size_t s = 0; s < optimizer.rule->slot_names().size(); ++s) {
    for (const at::Tensor& slot : optimizer.rule->slot(static_cast<int>(s)))
      if (slot.dim() > 0) MakeFirstOutermost(slot);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServedVariables> VariablesToServe(Replica* replica) {
  if (const auto own = replica->replica_buffers(); !own.empty()) {
    return ProgramError(fmt::format(
        "buffer \"{}\" is declared kPerReplica, which parameter servers cannot save and restore: "
        "use another strategy, or keep it outside of the module",
        own.front().name));
  }
  ServedVariables served;
  Collector collector(&served);
  const std::vector<NamedOptimizer>& optimizers = replica->optimizers();
  for (size_t o = 0; o < optimizers.size(); ++o) {
    MUSTER_ASSIGN_OR_RETURN(const OptimizerSpec spec, ParseOptimizer(optimizers[o].spec));
    MUSTER_RETURN_IF_ERROR(
        AddParameters(optimizers[o], spec, static_cast<int>(served.optimizers.size()), &collector));
    for (int group = 0; group <= static_cast<int>(spec.groups.size()); ++group) {
      served.optimizers.push_back(OptimizerOfGroup(optimizers[o].spec, group));
      served.owners.push_back({static_cast<int>(o), group, spec.scale_of(group)});
    }
  }
  for (const NamedEmbedding& table : replica->embeddings()) {
    VariableSpec spec{
        table.name, {0, table.options.width}, static_cast<int>(served.optimizers.size()), {}};
    const push_pull::EmbeddingTable::Options& rows = table.options;
    spec.table = push_pull::TableSpec{.width = rows.width,
                                      .initializer = static_cast<int>(rows.initializer.kind),
                                      .scale = rows.initializer.scale,
                                      .seed = rows.seed,
                                      .type = static_cast<int>(rows.type),
                                      .max_rows = rows.limits.max_rows,
                                      .max_bytes = rows.limits.max_bytes,
                                      .eviction = static_cast<int>(rows.limits.eviction),
                                      .admit_after = rows.limits.admit_after};
    served.specs.push_back(std::move(spec));
    served.tensors.push_back(at::empty({0, table.options.width}));
    served.optimizers.push_back(table.optimizer);
  }
  served.optimizers.push_back(Json::object({{"name", "sgd"}}));
  served.owners.resize(served.optimizers.size());
  std::map<std::string, int> kinds;  // Kind of a buffer, by its last name.
  for (const NamedModel& model : replica->models()) {
    for (const auto& [name, parameter] : model.parameters) {
      if (!collector.Has(parameter))
        MUSTER_RETURN_IF_ERROR(
            collector.Add(fmt::format("{}.{}", model.name, name), parameter, served.rest(), 0));
    }
    for (const auto& [name, buffer] : model.buffers) {
      if (!buffer.is_floating_point() || collector.Has(buffer)) continue;
      const std::string last = name.substr(name.rfind('.') + 1);
      const int kind = kinds.try_emplace(last, 1 + static_cast<int>(kinds.size())).first->second;
      MUSTER_RETURN_IF_ERROR(
          collector.Add(fmt::format("{}.{}", model.name, name), buffer, served.rest(), kind));
    }
  }
  return served;
}

std::vector<std::vector<std::span<float>>> ShardSpans(const push_pull::Layout& layout,
                                                      const std::vector<VariableSpec>& variables,
                                                      const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(variables.size() == tensors.size(), variables.size(), " variables, but ",
              tensors.size(), " tensors");
  std::vector<VariablePart> parts = layout.parts;
  std::stable_sort(parts.begin(), parts.end(), [](const VariablePart& a, const VariablePart& b) {
    return a.offset < b.offset;
  });
  std::vector<std::vector<std::span<float>>> spans(layout.elements.size());
  for (const VariablePart& part : parts) {
    if (part.elements() == 0) continue;
    const at::Tensor& tensor = tensors[part.variable];
    TORCH_CHECK(tensor.is_cpu() && tensor.scalar_type() == at::kFloat && FirstOutermost(tensor) &&
                    OrderOf(tensor) == variables[part.variable].order,
                "the memory of ", variables[part.variable].name, " is not laid out as it is said");
    spans[part.server].emplace_back(tensor.data_ptr<float>() + part.begin, part.elements());
  }
  return spans;
}

}  // namespace muster
