// Derives from a metric's name whether larger or smaller values are better.
#pragma once

#include <optional>
#include <string_view>

namespace muster {

// Returns true if larger values of the metric are better, and false if smaller values are better.
// Returns nullopt if the name has none of the known parts, such as "loss" or "acc". Ignores case
// and the prefixes "val_" and "ema_".
std::optional<bool> LargerIsBetterByName(std::string_view metric);

}  // namespace muster
