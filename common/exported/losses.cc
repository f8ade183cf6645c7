#include "common/exported/losses.h"

#include <ATen/ops/ne.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>
#include <vector>

#include "muster/losses.h"

namespace muster::exported {
namespace {

// Returns the output in the target's shape: [batch, 1] becomes [batch].
at::Tensor Like(const at::Tensor& output, const at::Tensor& target) {
  return output.dim() == target.dim() + 1 && output.size(-1) == 1 ? target.unsqueeze(-1) : target;
}

void CheckSmoothing(double smoothing, JsonObject* object) {
  if (smoothing >= 0 && smoothing <= 1) return;
  object->Fail("label_smoothing", fmt::format("must be from 0 to 1, is {}", smoothing));
}

Loss CrossEntropy(JsonObject* object) {
  CrossEntropyOptions options;
  options.class_dim = -1;
  object->Read("class_dim", &options.class_dim)
      .Read("ignore_index", &options.ignore_index)
      .Read("label_smoothing", &options.label_smoothing);
  CheckSmoothing(options.label_smoothing, object);
  if (options.class_dim != 1 && options.class_dim != -1) {
    object->Fail("class_dim",
                 fmt::format("must be 1 or -1 (the last dimension), is {}", options.class_dim));
  }
  const auto values = [options](const at::Tensor& output, const at::Tensor& target) {
    CrossEntropyOptions how = options;
    if (!target.is_floating_point()) how.shape = LossShape::kPerElement;
    return cross_entropy(output, target, how);
  };
  return {values, options.ignore_index, options.class_dim};
}

Loss BinaryCrossEntropy(JsonObject* object) {
  BinaryCrossEntropyOptions options;
  object->Read("label_smoothing", &options.label_smoothing);
  CheckSmoothing(options.label_smoothing, object);
  return {[options](const at::Tensor& output, const at::Tensor& target) {
    return binary_cross_entropy(output, Like(output, target), options);
  }};
}

Loss MeanSquaredError(JsonObject*) {
  return {[](const at::Tensor& output, const at::Tensor& target) {
    return mean_squared_error(output, Like(output, target));
  }};
}
Loss MeanAbsoluteError(JsonObject*) {
  return {[](const at::Tensor& output, const at::Tensor& target) {
    return mean_absolute_error(output, Like(output, target));
  }};
}
Loss Hinge(JsonObject*) {
  return {[](const at::Tensor& output, const at::Tensor& target) {
    return hinge(output, Like(output, target));
  }};
}

Loss Huber(JsonObject* object) {
  double delta = 1;
  object->Read("delta", &delta);
  if (delta <= 0) object->Fail("delta", fmt::format("must be above 0, is {}", delta));
  return {[delta](const at::Tensor& output, const at::Tensor& target) {
    return huber(output, Like(output, target), delta);
  }};
}

}  // namespace

at::Tensor Loss::Weights(const at::Tensor& target) const {
  if (!ignore_index || target.is_floating_point()) return {};
  // Converts the type, because bytes cannot be -100.
  return target.to(at::kLong).ne(*ignore_index);
}

absl::StatusOr<Loss> MakeLoss(const Json& json, const std::string& place) {
  // Each function reads the keys of its loss.
  static const std::map<std::string, Loss (*)(JsonObject*)> kLosses = {
      {"cross_entropy", CrossEntropy},
      {"binary_cross_entropy", BinaryCrossEntropy},
      {"mean_squared_error", MeanSquaredError},
      {"mean_absolute_error", MeanAbsoluteError},
      {"hinge", Hinge},
      {"huber", Huber},
  };
  const Json spec = json.is_string() ? Json{{"name", json}} : json;
  std::vector<std::string> names;
  for (const auto& [name, loss] : kLosses) names.push_back(name);
  if (!spec.is_object() || !spec.contains("name")) {
    return ConfigurationError(fmt::format("{} must name a loss, one of {}; it is {}", place,
                                          fmt::join(names, ", "), json.dump()));
  }
  std::string name;
  JsonObject object(spec, place);
  object.Read("name", &name);
  const auto found = kLosses.find(name);
  if (found == kLosses.end()) {
    const std::string nearest = Nearest(name, names);
    return ConfigurationError(
        fmt::format("{} \"{}\" is unknown{}; losses: {}", place, name,
                    nearest.empty() ? "" : fmt::format(", did you mean \"{}\"", nearest),
                    fmt::join(names, ", ")));
  }
  Loss loss = found->second(&object);
  MUSTER_RETURN_IF_ERROR(object.Finish());
  return loss;
}

}  // namespace muster::exported
