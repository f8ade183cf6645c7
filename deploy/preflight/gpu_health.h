// Reads the health of this host's GPUs from NVML, the library of the NVIDIA driver: memory errors,
// throttled clocks, and NVLinks that are down. Also finds the versions of the driver and of NCCL.
// Needs neither CUDA nor CUDA's headers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deploy/preflight/checks.h"
#include "muster/status.h"

namespace muster::preflight {

struct GpuState {
  std::string problem;  // Why the GPU cannot be accessed, or "".
  std::string name, uuid;
  bool divided = false;                // True if the GPU is in MIG mode.
  std::vector<std::string> instances;  // The UUIDs of the GPU's usable MIG instances.
  // The number of memory errors since the driver was loaded. Negative if the GPU does not count
  // errors.
  int64_t uncorrected_errors = -1, corrected_errors = -1;
  // True if the next reset of the GPU will replace rows or pages of its memory.
  bool repair_pending = false;
  // True if a defective memory row could not be replaced, because no spare row is left.
  bool repair_failed = false;
  uint64_t throttle_reasons = 0;     // The bits nvmlClocksThrottleReason*.
  int temperature = -1;              // In degrees Celsius.
  int links_up = 0, links_down = 0;  // The numbers of NVLinks.
};

struct GpuReport {
  std::string problem;                       // Why NVML failed, or "".
  bool library = false;                      // False if NVML or the driver is missing.
  std::string driver_version, nccl_version;  // "": unknown.
  std::vector<GpuState> gpus;
};

// Loads NVML in a child process, because NVML may hang if the driver is broken. After 20 s,
// returns a report with a `problem`.
GpuReport ReadGpuHealth();
// Works as ReadGpuHealth, but in the calling process. Only tests pass the parameters.
GpuReport ReadGpuHealthHere(const char* library = "libnvidia-ml.so.1",
                            const char* nccl = "libnccl.so.2");

// The two settings that select the GPUs of a job.
struct GpuChoice {
  std::string devices = "auto";        // The job's "devices", which does not begin with "cpu".
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES, or nullopt.
};

// Returns a check for each problem of a GPU. If the GPUs of the job have no problem, also returns a
// check with a summary. Problems of GPUs that the job does not use are warnings.
std::vector<Check> JudgeGpus(const GpuReport& report, const GpuChoice& choice);

}  // namespace muster::preflight
