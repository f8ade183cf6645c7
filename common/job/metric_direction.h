// The direction of a metric, from its name.
#pragma once

#include <optional>
#include <string_view>

namespace muster {

// Returns whether larger values of a metric with this name are better, or nullopt if the name does
// not tell. Ignores case and the prefixes "val_" and "ema_".
std::optional<bool> LargerIsBetterByName(std::string_view metric);

}  // namespace muster
