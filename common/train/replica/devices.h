// Parses the job's "devices": the devices that this process uses, with one replica on each.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "muster/status.h"

namespace muster {

// Accepts "auto", "cpu", "cpu:N" (N replicas), "cuda" (all visible devices) and "cuda:0,1". "auto"
// means all CUDA devices that CUDA_VISIBLE_DEVICES shows, or one CPU replica if there is none.
// Returns a ConfigurationError that says how many devices there are if one is missing. Also returns
// a ConfigurationError for "auto" if a driver is installed, nothing hides its GPUs, and CUDA finds
// none.
absl::StatusOr<std::vector<c10::Device>> ParseDevices(const std::string& text);

// Returns an error unless `devices` is 1, because a worker of a parameter-server job has one
// replica. `text` is the job's "devices", for the error.
absl::Status CheckDevicesForServers(const std::string& text, size_t devices);

// Returns the indices of the CUDA devices. The result is empty for CPU replicas.
std::vector<int> CudaIndices(const std::vector<c10::Device>& devices);

// Copies a tensor to the CUDA device `device`, on its current stream, without waiting for it.
// Returns `tensor` itself if it is on `device`, which may be the CPU.
at::Tensor CopyToDevice(const at::Tensor& tensor, const c10::Device& device);

// Makes LibTorch compute the same bits in each run. Afterwards, operators without a deterministic
// algorithm throw. Called before the first use of CUDA, and before other threads use LibTorch.
void ComputeDeterministically();

}  // namespace muster
