// The job's "devices": which devices of this process hold a replica each.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

// "auto" (all CUDA devices that CUDA_VISIBLE_DEVICES shows, else one CPU replica), "cpu", "cpu:N"
// (N replicas), "cuda" (all), "cuda:0,1". Asking for a device that is not there is a
// ConfigurationError that says what is; so is "auto" where there is a driver, nothing hides its
// GPUs, and CUDA finds none.
absl::StatusOr<std::vector<c10::Device>> ParseDevices(const std::string& text);

// An error where a worker of parameter servers would have so many replicas.
absl::Status CheckDevicesForServers(const std::string& text, size_t devices);

// The indices of CUDA devices; empty for replicas on the CPU.
std::vector<int> CudaIndices(const std::vector<c10::Device>& devices);

// From now on this process computes the same bits from run to run, where LibTorch can; operators
// that cannot throw. Before the first use of CUDA, and of LibTorch on other threads.
void ComputeDeterministically();

}  // namespace muster
