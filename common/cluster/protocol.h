// The version of the control protocol: proto/coordinator.proto, and proto/parameter_server.proto,
// which joined tasks call. Both sides must have the same version.
#pragma once

#include <cstdint>

namespace muster {

inline constexpr uint32_t kControlProtocol = 2;

}  // namespace muster
