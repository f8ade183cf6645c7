#include "common/job/metric_direction.h"

#include <absl/strings/ascii.h>

#include <algorithm>
#include <string>

namespace muster {

std::optional<bool> LargerIsBetterByName(std::string_view metric) {
  for (const std::string_view prefix : {"val_", "ema_"})
    if (metric.starts_with(prefix)) metric.remove_prefix(prefix.size());
  std::string name(metric);
  absl::AsciiStrToLower(&name);
  const auto has = [&](std::initializer_list<const char*> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const char* part) { return name.find(part) != std::string::npos; });
  };
  if (has({"loss", "error", "mae", "mse", "rmse", "mape", "perplexity", "entropy", "hinge"}))
    return false;
  if (has({"acc", "auc", "precision", "recall", "f1", "iou", "top", "r2", "similarity"}))
    return true;
  return std::nullopt;
}

}  // namespace muster
