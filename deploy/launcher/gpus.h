// Finds the GPUs of this host without linking CUDA, and assigns them to the tasks of a local
// cluster. CUDA uses every GPU that a process sees, and NCCL refuses a GPU that two processes hold.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "deploy/launcher/plan.h"
#include "muster/status.h"

namespace muster {

struct GpuInventory {
  struct Gpu {
    std::string id;  // As in CUDA_VISIBLE_DEVICES: "GPU-<uuid>", "MIG-<uuid>", or "3".
  };
  // Usable devices. A GPU in MIG mode contributes its instances instead of itself.
  std::vector<Gpu> gpus;
  int physical = 0;  // GPUs, regardless of MIG.
};

// Asks the driver's library, libnvidia-ml.so.1, in a child process, because it may hang on a broken
// driver. Without the library, counts the folders of /proc/driver/nvidia/gpus. Without a driver
// there are no GPUs. A driver that does not work is a ConfigurationError.
absl::StatusOr<GpuInventory> ReadGpus(Duration timeout = std::chrono::seconds(20));

// The same in the calling process. `library` and `folder` are for tests.
absl::StatusOr<GpuInventory> ReadGpusHere(const char* library = "libnvidia-ml.so.1",
                                          const char* folder = "/proc/driver/nvidia/gpus");

// Returns the GPUs that CUDA_VISIBLE_DEVICES selects, each as the variable names it, or all GPUs if
// it is not set (nullopt). Returns a ConfigurationError if it names a GPU twice, or one that does
// not exist.
absl::StatusOr<std::vector<std::string>> VisibleGpus(const GpuInventory& inventory,
                                                     const std::optional<std::string>& variable);

struct GpuUse {
  std::string devices = "auto";  // The job's "devices".
  bool servers = false;  // A parameter_server job: only the workers compute, with one replica each.
  bool one_device = false;
};

struct GpuPlan {
  // By task, the value of CUDA_VISIBLE_DEVICES. nullopt: as in the launcher's environment.
  std::vector<std::optional<std::string>> visible;
  std::string note;  // One line for the user. Empty: none.
};

// Distributes `gpus` over the training tasks, adjacent GPUs to adjacent tasks. ps and evaluator get
// none. With fewer GPUs than members, all members train on the CPU. If the job requires CUDA, that
// is a ConfigurationError.
absl::StatusOr<GpuPlan> AssignGpus(const std::vector<std::string>& gpus,
                                   const std::vector<PlannedTask>& tasks, const GpuUse& use);

// For `--workers auto`: the number of workers that gives one member per GPU. One worker without
// GPUs.
int WorkersFor(int gpus, const ClusterSize& size);

}  // namespace muster
