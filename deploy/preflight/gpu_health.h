// Asks the NVIDIA driver's library (NVML) whether the GPUs of this host are well: memory errors,
// clocks that are held down, NVLinks that are down. Needs neither CUDA nor its headers. Also finds
// the versions of the driver and of NCCL.
#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "deploy/preflight/checks.h"
#include "muster/status.h"

namespace muster::preflight {

struct GpuState {
  std::string name, uuid;
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
GpuReport ReadGpuHealthHere(const char* nvml = "libnvidia-ml.so.1",
                            const char* nccl = "libnccl.so.2");

// Returns a check for each GPU with a problem, or one that sums up.
std::vector<Check> JudgeGpus(const GpuReport& report);

}  // namespace muster::preflight
