#include "common/train/state/weights.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "common/base/files/files.h"
#include "common/base/logging.h"
#include "common/base/short_list.h"
#include "common/checkpoint/weights_file.h"
#include "common/train/state/snapshot.h"

namespace muster {
namespace {

std::string Few(const std::vector<std::string>& names) { return ShortList(names, 4); }

bool SameKind(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_floating_point() || b.is_floating_point())
    return a.is_floating_point() && b.is_floating_point();
  return (a.scalar_type() == at::kBool) == (b.scalar_type() == at::kBool);
}

// Loads one file, or the files of one index, into a model.
class Loading {
 public:
  Loading(const LoadSpec& spec, const NamedModel& model) : spec_(spec) {
    for (const auto& [name, tensor] : model.parameters) wanted_.emplace(name, tensor);
    for (const auto& [name, tensor] : model.buffers) wanted_.emplace(name, tensor);
  }

  absl::Status Take(const checkpoint::WeightsFile& file) {
    for (const checkpoint::Tensor& tensor : file.set.tensors) {
      MUSTER_ASSIGN_OR_RETURN(const std::optional<std::string> name, Wanted(tensor.name));
      if (name) MUSTER_RETURN_IF_ERROR(Take(tensor, *name));
    }
    for (const auto& [name_in_file, type] : file.foreign) {
      MUSTER_ASSIGN_OR_RETURN(const std::optional<std::string> name, Wanted(name_in_file));
      if (!name) continue;
      return ConfigurationError(
          fmt::format("{}: \"{}\" is of type {} in {}, which this version cannot load: save it as "
                      "another type (F32, I64)",
                      spec_.where, *name, type, spec_.path));
    }
    return absl::OkStatus();
  }

  void AddFilled(std::set<std::string>* filled) const {
    for (const auto& [name, tensor] : wanted_)
      if (filled_.contains(tensor.unsafeGetTensorImpl())) filled->insert(spec_.model + "." + name);
  }

  absl::Status Finish() {
    std::sort(unexpected_.begin(), unexpected_.end());
    std::vector<std::string> missing;
    for (const auto& [name, tensor] : wanted_) {
      // For tied weights, the file needs only one of the names.
      if (!filled_.contains(tensor.unsafeGetTensorImpl())) missing.push_back(name);
    }
    if (from_.empty()) {
      return ConfigurationError(fmt::format(
          "{}: none of the tensors of {} belongs to the model, which has {}; the file has {}{}",
          spec_.where, spec_.path, Few(Names()), Few(unexpected_),
          unexpected_.empty() ? fmt::format("none that begins with \"{}\"", spec_.prefix) : ""));
    }
    if (spec_.strict && (!missing.empty() || !unexpected_.empty())) {
      std::vector<std::string> wrong;
      if (!missing.empty()) wrong.push_back(fmt::format("lacks {}", Few(missing)));
      if (!unexpected_.empty())
        wrong.push_back(fmt::format("has {}, which the model has not", Few(unexpected_)));
      return ConfigurationError(fmt::format("{}: {} {}; rename them, or set \"strict\": false",
                                            spec_.where, spec_.path, fmt::join(wrong, ", and ")));
    }
    std::string more;
    if (!missing.empty()) more += fmt::format("; left as they are: {}", Few(missing));
    if (!unexpected_.empty()) more += fmt::format("; not used: {}", Few(unexpected_));
    if (outside_ > 0) more += fmt::format("; {} do not begin with \"{}\"", outside_, spec_.prefix);
    LogInfo("model \"{}\" takes {} tensors from {}{}", spec_.model, from_.size(), spec_.path, more);
    return absl::OkStatus();
  }

 private:
  // Returns the name in the model for a tensor of the file, or nullopt if the tensor is not to be
  // loaded.
  absl::StatusOr<std::optional<std::string>> Wanted(const std::string& in_file) {
    if (!in_file.starts_with(spec_.prefix)) {
      ++outside_;
      return std::nullopt;
    }
    MUSTER_ASSIGN_OR_RETURN(std::string name, NameInModel(spec_, in_file));
    if (wanted_.contains(name)) return name;
    unexpected_.push_back(name == in_file ? name : fmt::format("{} ({})", in_file, name));
    return std::nullopt;
  }
  absl::Status Take(const checkpoint::Tensor& saved, const std::string& name) {
    const auto found = wanted_.find(name);
    const auto [other, first] = from_.try_emplace(name, saved.name);
    if (!first) {
      return ConfigurationError(fmt::format("{}: both {} and {} of {} become \"{}\"", spec_.where,
                                            other->second, saved.name, spec_.path, name));
    }
    const at::Tensor& tensor = found->second;
    const at::Tensor value = ViewOf(saved);
    if (tensor.sizes() != at::IntArrayRef(saved.shape)) {
      return ConfigurationError(fmt::format("{}: \"{}\" has shape [{}] in {} and [{}] in the model",
                                            spec_.where, name, fmt::join(saved.shape, ", "),
                                            spec_.path, fmt::join(tensor.sizes(), ", ")));
    }
    if (!SameKind(tensor, value)) {
      return ConfigurationError(fmt::format("{}: \"{}\" is of type {} in {} and {} in the model",
                                            spec_.where, name, c10::toString(value.scalar_type()),
                                            spec_.path, c10::toString(tensor.scalar_type())));
    }
    filled_.insert(tensor.unsafeGetTensorImpl());
    if (tensor.numel() == 0) return absl::OkStatus();
    return CatchProgramErrors("loading weights", [&] {
      const at::NoGradGuard no_grad;
      // In a file from another program, a tensor may not be aligned to its type.
      const auto address = reinterpret_cast<uintptr_t>(saved.data);
      tensor.detach().copy_(address % value.element_size() == 0 ? value : Aligned(saved, value));
    });
  }
  static at::Tensor Aligned(const checkpoint::Tensor& saved, const at::Tensor& like) {
    at::Tensor copy = at::empty(like.sizes(), like.options());
    std::memcpy(copy.mutable_data_ptr(), saved.data, saved.bytes());
    return copy;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : wanted_) names.push_back(name);
    return names;
  }

  const LoadSpec& spec_;
  std::map<std::string, at::Tensor> wanted_;
  std::map<std::string, std::string> from_;  // Name in the model -> name in the file.
  std::set<const at::TensorImpl*> filled_;
  std::vector<std::string> unexpected_;
  int64_t outside_ = 0;  // Number of tensors without the prefix.
};

absl::Status LoadOne(checkpoint::FileSystem& files, const LoadSpec& spec, const Replica& replica,
                     std::set<std::string>* filled) {
  const auto& models = replica.models();
  const auto model = std::find_if(models.begin(), models.end(),
                                  [&](const NamedModel& m) { return m.name == spec.model; });
  if (model == models.end()) {
    std::vector<std::string> names;
    for (const NamedModel& one : models) names.push_back(one.name);
    const std::string nearest = Nearest(spec.model, names);
    return ConfigurationError(
        fmt::format("{} names no model of this program{}; it has {}", spec.where,
                    nearest.empty() ? "" : fmt::format(", did you mean \"{}\"", nearest),
                    fmt::join(names, ", ")));
  }
  Loading loading(spec, *model);
  absl::Status status = checkpoint::ReadWeights(
      files, spec.path,
      [&loading](const checkpoint::WeightsFile& file) { return loading.Take(file); });
  if (status.ok()) {
    if (filled != nullptr) loading.AddFilled(filled);
    return loading.Finish();
  }
  if (absl::IsDataLoss(status) || ExitCodeOf(status) == ExitCode::kConfiguration)
    return absl::IsDataLoss(status) ? Annotate(status, spec.where + ": ") : status;
  return ConfigurationError(
      fmt::format("{}: cannot read '{}': {}", spec.where, spec.path, Message(status)));
}

}  // namespace

absl::StatusOr<std::vector<LoadSpec>> LoadsOf(const Job& job, const Replica& replica) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<LoadSpec> specs, ParseLoad(job.load));
  std::set<std::string> of_job;
  for (LoadSpec& spec : specs) {
    of_job.insert(spec.model);
    spec.path = PathFrom(job.folder, spec.path);
  }
  for (const LoadSpec& spec : replica.loads())
    if (!of_job.contains(spec.model)) specs.push_back(spec);
  return specs;
}

absl::Status LoadWeights(checkpoint::FileSystem& files, const Job& job, Replica* replica,
                         std::set<std::string>* filled) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<LoadSpec> specs, LoadsOf(job, *replica));
  for (const LoadSpec& spec : specs) MUSTER_RETURN_IF_ERROR(LoadOne(files, spec, *replica, filled));
  return absl::OkStatus();
}

}  // namespace muster
