// Derives from a metric's name whether larger or smaller values of the metric are better.
#pragma once

#include <optional>
#include <string_view>

namespace muster {

// Returns true if larger values of the metric are better, and false if smaller values are better.
// Returns nullopt if the name contains no known part. Known parts are, for example, "loss" and
// "acc". Ignores case and the prefixes "val_" and "ema_".
std::optional<bool> LargerIsBetterByName(std::string_view metric);

}  // namespace muster
