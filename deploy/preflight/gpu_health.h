// Asks the NVIDIA driver's library (NVML) whether the GPUs of this host are well: memory errors,
// clocks that are held down, NVLinks that are down. Needs neither CUDA nor its headers. Also finds
// the versions of the driver and of NCCL.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "deploy/preflight/checks.h"
#include "muster/status.h"

namespace muster::preflight {

struct GpuState {
  std::string problem;  // Why the driver does not give access to it. "": it does.
  std::string name, uuid;
  bool divided = false;                // It is in MIG mode.
  std::vector<std::string> instances;  // The UUIDs of the instances that this process may use.
  // Since the driver was loaded. Below 0: the GPU does not count them.
  int64_t uncorrected_errors = -1, corrected_errors = -1;
  // Rows or pages of memory wait to be replaced at the next reset of the GPU.
  bool repair_pending = false;
  bool repair_failed = false;        // There are no rows left to replace them.
  uint64_t throttle_reasons = 0;     // nvmlClocksThrottleReason bits.
  int temperature = -1;              // Degrees Celsius.
  int links_up = 0, links_down = 0;  // NVLinks.
};

struct GpuReport {
  std::string problem;                       // Why the library does not answer. "": it does.
  bool library = false;                      // It is there.
  std::string driver_version, nccl_version;  // "": unknown.
  std::vector<GpuState> gpus;
};

// Loads the library in a child process, because it may hang if the driver is broken.
GpuReport ReadGpuHealth(Duration timeout = std::chrono::seconds(20));
// Does the same in the calling process. The names of the libraries are for tests.
GpuReport ReadGpuHealthHere(const char* library = "libnvidia-ml.so.1",
                            const char* nccl = "libnccl.so.2");

// What determines which GPUs of the host the job uses.
struct GpuChoice {
  std::string devices = "auto";        // The job's "devices", which is not for the CPU.
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES. nullopt: not set.
};

// Returns a check for each problem of a GPU, and one that sums up if the job's GPUs have none. A
// GPU that the job does not use only causes warnings.
std::vector<Check> JudgeGpus(const GpuReport& report, const GpuChoice& choice);

}  // namespace muster::preflight
