// Functions that find out whether this host has CUDA devices. They do not use LibTorch.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster {

struct CudaPresence {
  bool driver = false;            // The result of HasCudaDriver.
  std::string driver_version;     // For example "570.124.06". Empty: unknown.
  int devices = 0;                // The number of devices that CUDA finds.
  std::string load_error;         // Why LibTorch's CUDA libraries did not load. Empty: they loaded.
  const char* visible = nullptr;  // The variable CUDA_VISIBLE_DEVICES. Null: not set.
};
// Called if the job's "devices" is "auto". Returns an error if this host has an NVIDIA driver but
// CUDA finds no device, because the job would otherwise run on the CPU. Returns OK if
// CUDA_VISIBLE_DEVICES hides all devices.
absl::Status CheckFallback(const CudaPresence& presence);
// Returns the driver version in `text`, the content of /proc/driver/nvidia/version. Returns "" if
// `text` has no version.
std::string DriverVersion(const std::string& text);
// Returns the version of this host's driver. Returns "" if there is no driver.
std::string DriverVersionHere();

// Returns the time limit within which the members of a job must connect their communicators.
// `of_job` is the job's timeouts.formation. Returns 120 s if `cuda` is true and `of_job` is the
// default, 20 s. Otherwise returns `of_job`.
Duration FormationTimeout(Duration of_job, bool cuda);
// Returns true if a job with this "devices" may train on CUDA devices of this host. Does not call
// CUDA.
bool MayUseCuda(const std::string& devices);

// Makes NCCL use the network interface `interface`, the job's collective.interface. Has no effect
// if `interface` is empty or the variable NCCL_SOCKET_IFNAME is already set. Must be called before
// the first call of NCCL and before other threads start.
void UseInterface(const std::string& interface);

// Returns whether the device file of NVIDIA's driver, /dev/nvidiactl, exists. Does not check the
// folder /proc/driver/nvidia, because containers without a GPU also have this folder.
bool HasCudaDriver();

}  // namespace muster
