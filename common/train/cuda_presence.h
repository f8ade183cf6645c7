// What a process knows of its host's CUDA devices without LibTorch, and what follows from it.
#pragma once

#include <string>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster {

// What is known of this host's CUDA devices.
struct CudaPresence {
  bool driver = false;            // this container has the driver's device files
  std::string driver_version;     // "570.124.06"; empty: not known
  int devices = 0;                // that CUDA finds
  std::string load_error;         // why CUDA's half of LibTorch was not loaded; empty: it was
  const char* visible = nullptr;  // CUDA_VISIBLE_DEVICES; null: not set
};
// Training must not fall back to the CPU in silence: an error where "auto" would.
absl::Status CheckFallback(const CudaPresence& presence);
// From the text of /proc/driver/nvidia/version; empty: it is not there.
std::string DriverVersion(const std::string& text);
std::string DriverVersionHere();

// One deadline for a generation to form. CUDA's replicas take longer, unless the job says
// otherwise.
Duration FormationTimeout(Duration of_job, bool cuda);
// Whether members of this job train on CUDA devices, as far as this process can tell before it has
// looked for them.
bool MayUseCuda(const std::string& devices);

// Of collective.interface, before NCCL's first call and before other threads: NCCL takes it too,
// unless NCCL_SOCKET_IFNAME is set already.
void UseInterface(const std::string& interface);

// In a container too: /proc/driver/nvidia is there also in one that was given no GPU.
bool HasCudaDriver();

}  // namespace muster
