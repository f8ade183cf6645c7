// What the name of a metric says about it.
#pragma once

#include <optional>
#include <string_view>

namespace muster {

// Whether larger values of a metric of that name are better; nullopt where the name does not tell.
// "val_" and "ema_" before it, and case, do not matter.
std::optional<bool> LargerIsBetterByName(std::string_view metric);

}  // namespace muster
