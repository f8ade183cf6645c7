// Parses the job's "devices", the devices of one process. The process has one replica (copy of the
// model) on each of these devices.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

// Accepts "auto", "cpu", "cpu:N" (N replicas on the CPU), "cuda" (all visible devices) and
// "cuda:0,1" (devices 0 and 1). "auto" means all CUDA devices that CUDA_VISIBLE_DEVICES shows, or
// one CPU replica if there is no such device.
//
// Returns a ConfigurationError if `text` has another form or names a device that does not exist.
// Also returns a ConfigurationError for "auto" if a CUDA driver is installed, CUDA_VISIBLE_DEVICES
// hides no GPU, and CUDA still finds no GPU.
absl::StatusOr<std::vector<c10::Device>> ParseDevices(const std::string& text);

// Returns an error if `devices` is not 1. A worker of a parameter-server job has exactly one
// replica. `text` is the job's "devices", for the error message.
absl::Status CheckDevicesForServers(const std::string& text, size_t devices);

// Returns the indices of the CUDA devices in `devices`. Returns an empty list for CPU replicas.
std::vector<int> CudaIndices(const std::vector<c10::Device>& devices);

// Starts a copy of `tensor` to the CUDA device `device`, on the current stream of that device.
// Returns the copy without waiting. If `tensor` is on `device` already, returns `tensor` itself.
// `device` may be the CPU only in that case.
at::Tensor CopyToDevice(const at::Tensor& tensor, const c10::Device& device);

// Makes LibTorch compute the same bits in each run. After this call, operators without a
// deterministic algorithm throw. Must be called before the first use of CUDA, and before other
// threads use LibTorch.
void ComputeDeterministically();

}  // namespace muster
