// The version of the control protocol (proto/coordinator.proto and proto/parameter_server.proto).
// All tasks of a cluster must have the same version. The chief checks it when a task joins.
#pragma once

#include <cstdint>

namespace muster {

inline constexpr uint32_t kControlProtocol = 2;

}  // namespace muster
