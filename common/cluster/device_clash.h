// Checks that tasks can train together with their devices.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

struct MemberDevices {
  std::string task;                // "worker:1"
  std::string kind;                // "cpu" or "cuda". Empty: unknown.
  std::vector<std::string> uuids;  // The UUIDs of the CUDA devices, such as "GPU-8932f937-...".
  std::string driver;              // The driver's version. Empty: unknown.
  // The value of the environment variable NCCL_HOSTID. Empty: not set.
  std::string nccl_host_id;
};

// Converts `held`, a proto::DevicesHeld that `task` ("worker:1") has sent.
template <typename Held>
MemberDevices DevicesOf(const std::string& task, const Held& held) {
  return {task,
          held.kind(),
          {held.uuids().begin(), held.uuids().end()},
          held.driver(),
          held.nccl_host_id()};
}

// Returns a ConfigurationError that names two tasks in these cases:
// - Both tasks hold the same GPU, which NCCL refuses. But two tasks with different values of
//   NCCL_HOSTID may hold the same GPU, because NCCL treats them as tasks on different hosts.
// - One task uses CUDA devices and the other task uses the CPU. The tasks would use different
//   collective backends and wait for each other.
absl::Status CheckDeviceClash(const std::vector<MemberDevices>& members);

}  // namespace muster
