// Reads the health of this host's GPUs from the NVIDIA driver's library (NVML): memory errors,
// throttled clocks, NVLinks that are down. Also finds the versions of the driver and of NCCL. Needs
// neither CUDA nor its headers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "deploy/preflight/checks.h"
#include "muster/status.h"

namespace muster::preflight {

struct GpuState {
  std::string problem;  // Why the GPU cannot be accessed, "" if it can.
  std::string name, uuid;
  bool divided = false;                // The GPU is in MIG mode.
  std::vector<std::string> instances;  // UUIDs of the usable instances.
  // Memory errors since the driver was loaded. Negative if the GPU does not count them.
  int64_t uncorrected_errors = -1, corrected_errors = -1;
  // Rows or pages of memory will be replaced at the next reset of the GPU.
  bool repair_pending = false;
  bool repair_failed = false;        // No spare rows are left.
  uint64_t throttle_reasons = 0;     // nvmlClocksThrottleReason bits.
  int temperature = -1;              // Degrees Celsius.
  int links_up = 0, links_down = 0;  // NVLinks.
};

struct GpuReport {
  std::string problem;                       // Why NVML failed, "" if it did not.
  bool library = false;                      // NVML exists.
  std::string driver_version, nccl_version;  // "": unknown.
  std::vector<GpuState> gpus;
};

// Loads the library in a child process, because it may hang if the driver is broken.
GpuReport ReadGpuHealth(Duration timeout = std::chrono::seconds(20));
// Does the same in the calling process. The parameters are for tests.
GpuReport ReadGpuHealthHere(const char* library = "libnvidia-ml.so.1",
                            const char* nccl = "libnccl.so.2");

// The settings that select the job's GPUs.
struct GpuChoice {
  std::string devices = "auto";        // The job's "devices", not a CPU.
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES. nullopt: not set.
};

// Returns a check for each problem of a GPU, and a summary if the job's GPUs have no problem.
// Problems of GPUs that the job does not use are only warnings.
std::vector<Check> JudgeGpus(const GpuReport& report, const GpuChoice& choice);

}  // namespace muster::preflight
