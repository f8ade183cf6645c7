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

namespace muster::launcher {

struct GpuInventory {
  struct Gpu {
    std::string id;  // As in CUDA_VISIBLE_DEVICES: "GPU-<uuid>", "MIG-<uuid>", or "3".
  };
  // Usable devices. A GPU in MIG mode contributes its instances instead of itself.
  std::vector<Gpu> gpus;
  int physical = 0;  // GPUs, regardless of MIG.
};

// Finds the GPUs with the driver's library, libnvidia-ml.so.1. Loads it in a child process, because
// it may hang if the driver is broken. Without the library, counts the folders of
// /proc/driver/nvidia/gpus. Without a driver there are no GPUs. Returns ConfigurationError if the
// driver does not work.
absl::StatusOr<GpuInventory> ReadGpus(Duration timeout = std::chrono::seconds(20));

// Does the same in the calling process. `library` and `folder` are for tests.
absl::StatusOr<GpuInventory> ReadGpusHere(const char* library = "libnvidia-ml.so.1",
                                          const char* folder = "/proc/driver/nvidia/gpus");

// Returns the GPUs that CUDA_VISIBLE_DEVICES selects, with the names that it uses. Returns all GPUs
// if it is not set (nullopt). Returns ConfigurationError if it names a GPU twice or a GPU that does
// not exist.
absl::StatusOr<std::vector<std::string>> VisibleGpus(const GpuInventory& inventory,
                                                     const std::optional<std::string>& variable);

struct GpuUse {
  std::string devices = "auto";  // The job's "devices".
  // True for a parameter_server job: only the workers compute, with one replica each.
  bool servers = false;
  bool one_device = false;
};

struct GpuPlan {
  // The value of CUDA_VISIBLE_DEVICES for each task. nullopt: the task gets the value of the
  // launcher's environment.
  std::vector<std::optional<std::string>> visible;
  std::string note;  // One line for the user. Empty: none.
};

// Distributes `gpus` over the training tasks, adjacent GPUs to adjacent tasks. ps and evaluator get
// none. With fewer GPUs than members, all members train on the CPU, or, if the job requires CUDA,
// the result is a ConfigurationError.
absl::StatusOr<GpuPlan> AssignGpus(const std::vector<std::string>& gpus,
                                   const std::vector<PlannedTask>& tasks, const GpuUse& use);

// Returns the number of workers for `--workers auto`: one member for each GPU. Returns 1 without
// GPUs.
int WorkersFor(int gpus, const ClusterSize& size);

}  // namespace muster::launcher
