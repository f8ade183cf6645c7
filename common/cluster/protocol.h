// The version of the control protocol: proto/coordinator.proto, and what those who have joined by
// it call (proto/parameter_server.proto). Both sides must speak the same.
#pragma once

#include <cstdint>

namespace muster {

inline constexpr uint32_t kControlProtocol = 2;

}  // namespace muster
