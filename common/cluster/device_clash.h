// Checks that the devices of a generation's members are compatible.
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
  std::string nccl_host_id;        // NCCL_HOSTID. Empty: not set.
};

// Converts a proto::DevicesHeld.
template <typename Held>
MemberDevices DevicesOf(const std::string& task, const Held& held) {
  return {task,
          held.kind(),
          {held.uuids().begin(), held.uuids().end()},
          held.driver(),
          held.nccl_host_id()};
}

// Returns a ConfigurationError that names two tasks if they hold the same GPU, which NCCL refuses.
// NCCL accepts, and so does this function, tasks with different values of NCCL_HOSTID: to NCCL they
// are on different hosts.
// Also returns one if one task uses CUDA devices and another the CPU. They would wait for each
// other in different collective backends.
absl::Status CheckDeviceClash(const std::vector<MemberDevices>& members);

}  // namespace muster
