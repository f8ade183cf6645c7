// Derives from a metric's name whether larger or smaller values are better.
#pragma once

#include <optional>
#include <string_view>

namespace muster {

// Returns whether larger values of the metric are better. Returns nullopt if the name is unknown.
// Ignores case and the prefixes "val_" and "ema_".
std::optional<bool> LargerIsBetterByName(std::string_view metric);

}  // namespace muster
