// The check that the devices of a generation's members are compatible.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

struct MemberDevices {
  std::string task;                // "worker:1"
  std::string kind;                // "cpu" or "cuda". Empty: not reported.
  std::vector<std::string> uuids;  // CUDA devices, such as "GPU-8932f937-...".
  std::string driver;              // The driver's version. Empty: unknown.
};

// Converts a proto::DevicesHeld.
template <typename Held>
MemberDevices DevicesOf(const std::string& task, const Held& held) {
  return {task, held.kind(), {held.uuids().begin(), held.uuids().end()}, held.driver()};
}

// Returns a ConfigurationError that names both tasks in two cases. Two tasks hold the same GPU,
// which NCCL refuses. One task uses CUDA devices and another the CPU, so they would wait for each
// other in different collective backends.
absl::Status CheckDeviceClash(const std::vector<MemberDevices>& members);

}  // namespace muster
