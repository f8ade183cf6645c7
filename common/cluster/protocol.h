// The version of the control protocol (proto/coordinator.proto). Both sides must speak the same.
#pragma once

#include <cstdint>

namespace muster {

inline constexpr uint32_t kControlProtocol = 1;

}  // namespace muster
