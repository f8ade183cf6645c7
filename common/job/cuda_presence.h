// The state of the host's CUDA devices, as found without LibTorch, and the decisions that depend on
// it.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster {

struct CudaPresence {
  bool driver = false;            // This container has the driver's device files.
  std::string driver_version;     // "570.124.06"; empty: not known.
  int devices = 0;                // Devices that CUDA finds.
  std::string load_error;         // Why the CUDA part of LibTorch was not loaded. Empty: it was.
  const char* visible = nullptr;  // CUDA_VISIBLE_DEVICES; null: not set.
};
// Returns an error if "auto" would silently fall back to the CPU.
absl::Status CheckFallback(const CudaPresence& presence);
// Parses the text of /proc/driver/nvidia/version. Returns "" if it has no version.
std::string DriverVersion(const std::string& text);
std::string DriverVersionHere();

// Returns the deadline for a generation to form. CUDA replicas get a longer one, unless the job
// sets it.
Duration FormationTimeout(Duration of_job, bool cuda);
// Returns whether members of this job train on CUDA devices, as far as is known before devices are
// enumerated.
bool MayUseCuda(const std::string& devices);

// Makes NCCL use collective.interface too, unless NCCL_SOCKET_IFNAME is set. Called before NCCL's
// first call and before other threads start.
void UseInterface(const std::string& interface);

// Returns whether the driver's device files exist. This also works in containers, where
// /proc/driver/nvidia exists even without a GPU.
bool HasCudaDriver();

}  // namespace muster
