// Finds the GPUs of this host without linking CUDA, and assigns each GPU to one task. Two tasks
// must not see the same GPU, because CUDA uses every GPU that a process sees, and NCCL refuses a
// GPU that two processes use.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/launcher/plan.h"
#include "muster/status.h"

namespace muster::launcher {

struct GpuInventory {
  struct Gpu {
    std::string id;  // An entry for CUDA_VISIBLE_DEVICES: "GPU-<uuid>", "MIG-<uuid>" or "3".
  };
  // The usable devices. For a GPU in MIG mode, the list has its MIG instances, and not the GPU
  // itself.
  std::vector<Gpu> gpus;
  int physical = 0;  // The number of GPUs. A GPU in MIG mode counts once.
};

// Finds the GPUs with the driver's library, libnvidia-ml.so.1. Loads the library in a child
// process, because the library may hang if the driver is broken. If the library is missing, counts
// the folders in /proc/driver/nvidia/gpus. If there is no driver, the result has no GPUs. Returns
// ConfigurationError (muster/status.h) if the driver does not work.
absl::StatusOr<GpuInventory> ReadGpus();

// Works as ReadGpus, but in the calling process. Only tests pass `library` and `folder`.
absl::StatusOr<GpuInventory> ReadGpusHere(const char* library = "libnvidia-ml.so.1",
                                          const char* folder = "/proc/driver/nvidia/gpus");

// Returns the GPUs that the environment variable CUDA_VISIBLE_DEVICES selects. `variable` is the
// variable's value. The result names each GPU by UUID or by index, in the same way as the value. If
// the variable is not set (nullopt), returns all GPUs. Returns ConfigurationError if the value
// names a GPU twice, or a GPU that does not exist.
absl::StatusOr<std::vector<std::string>> VisibleGpus(const GpuInventory& inventory,
                                                     const std::optional<std::string>& variable);

// Returns how many GPUs the value of "devices" in the job file requires of each member: the highest
// index plus one, so that "cuda:0,3" needs four. Returns 0 if it does not begin with "cuda".
int GpusNeeded(const std::string& devices);

struct GpuUse {
  std::string devices = "auto";  // The value of "devices" in the job file.
  // True for a job with parameter servers: only the workers use GPUs, and each worker uses one GPU.
  bool servers = false;
  // True for a job with the strategy one_device: each member (chief or worker) uses one GPU.
  bool one_device = false;
};

struct GpuPlan {
  // The value of CUDA_VISIBLE_DEVICES for each task. nullopt: the task inherits the launcher's
  // value.
  std::vector<std::optional<std::string>> visible;
  std::string note;  // One line for the user, or "".
};

// Distributes `gpus` over the members. The members are the chief and the workers. If use.servers is
// true, only the workers are members. Adjacent members get adjacent GPUs. All other tasks get no
// GPU. If there are fewer GPUs than members and use.devices is "auto", all members train on the
// CPU. If use.devices requires CUDA and there are too few GPUs, returns ConfigurationError. But if
// `gpus` is empty or use.devices begins with "cpu", assigns nothing: all tasks inherit the
// launcher's CUDA_VISIBLE_DEVICES.
absl::StatusOr<GpuPlan> AssignGpus(const std::vector<std::string>& gpus,
                                   const std::vector<PlannedTask>& tasks, const GpuUse& use);

// Returns the number of workers for `--workers auto`, so that there is one member for each of the
// `gpus` GPUs. Returns 1 if `gpus` is 0.
int WorkersFor(int gpus, const ClusterSize& size);

}  // namespace muster::launcher
