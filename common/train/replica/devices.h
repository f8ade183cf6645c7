// Parses the job's "devices": the devices of this process that hold one replica each.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

// Accepts "auto", "cpu", "cpu:N" (N replicas), "cuda" (all) and "cuda:0,1". "auto" means all CUDA
// devices that CUDA_VISIBLE_DEVICES shows, else one CPU replica. A request for a missing device is
// a ConfigurationError that lists the present ones. "auto" is also an error if there is a driver,
// nothing hides its GPUs, and CUDA finds none.
absl::StatusOr<std::vector<c10::Device>> ParseDevices(const std::string& text);

// Returns an error if a worker of parameter servers cannot have this many replicas.
absl::Status CheckDevicesForServers(const std::string& text, size_t devices);

// Returns the indices of CUDA devices; empty for CPU replicas.
std::vector<int> CudaIndices(const std::vector<c10::Device>& devices);

// Makes this process compute the same bits from run to run, where LibTorch can. Operators without a
// deterministic algorithm throw. Called before the first use of CUDA, and before other threads use
// LibTorch.
void ComputeDeterministically();

}  // namespace muster
