// The limit of waits in tests of the launcher.
#pragma once

#include <chrono>

namespace muster::launcher {

// Far above what a test needs; a test that reaches it has failed.
inline constexpr auto kDeadline = std::chrono::minutes(2);

}  // namespace muster::launcher
