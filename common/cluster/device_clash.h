// Whether the devices of a generation's members go together.
#pragma once

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

struct MemberDevices {
  std::string task;                // "worker:1"
  std::string kind;                // "cpu", "cuda"; empty: not told
  std::vector<std::string> uuids;  // of CUDA devices: "GPU-8932f937-..."
  std::string driver;              // its version; empty: not known
};

// From proto::DevicesHeld.
template <typename Held>
MemberDevices DevicesOf(const std::string& task, const Held& held) {
  return {task, held.kind(), {held.uuids().begin(), held.uuids().end()}, held.driver()};
}

// ConfigurationError naming both tasks where two of them hold one GPU, which NCCL refuses, or where
// one computes on CUDA devices and another one on the CPU: they would wait for each other in
// different places.
absl::Status CheckDeviceClash(const std::vector<MemberDevices>& members);

}  // namespace muster
