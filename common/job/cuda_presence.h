// Finds out without LibTorch whether this host has CUDA devices, and decides what follows from
// that.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster {

struct CudaPresence {
  bool driver = false;            // The driver's device files exist (in this container).
  std::string driver_version;     // "570.124.06". Empty: unknown.
  int devices = 0;                // The number of devices that CUDA finds.
  std::string load_error;         // Why LibTorch's CUDA part did not load. Empty: it did load.
  const char* visible = nullptr;  // CUDA_VISIBLE_DEVICES. Null: not set.
};
// Called for "devices": "auto". Returns an error if the job would run on the CPU although the host
// has a GPU driver.
absl::Status CheckFallback(const CudaPresence& presence);
// Returns the version in `text`, the content of /proc/driver/nvidia/version. Returns "" if there is
// none.
std::string DriverVersion(const std::string& text);
// Returns the version of this host's driver, or "".
std::string DriverVersionHere();

// Returns the timeout for forming a generation. `of_job` is the job's timeouts.formation. If it has
// its default value, CUDA replicas get a longer timeout.
Duration FormationTimeout(Duration of_job, bool cuda);
// Returns whether this job may train on CUDA devices. `devices` is the job's "devices". Works
// before devices are enumerated.
bool MayUseCuda(const std::string& devices);

// Makes NCCL use the network interface `interface` (collective.interface), unless
// NCCL_SOCKET_IFNAME is set. Called before NCCL's first call and before other threads start.
void UseInterface(const std::string& interface);

// Returns whether the driver's device files exist. /proc/driver/nvidia is not checked, because it
// exists even in containers without a GPU.
bool HasCudaDriver();

}  // namespace muster
