// The GPUs of this host, without CUDA linked, and which task of a local cluster sees which of them.
// CUDA takes every GPU that a process sees, and NCCL refuses a GPU that two processes hold.
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
    std::string id;  // as CUDA_VISIBLE_DEVICES names it: "GPU-<uuid>", "MIG-<uuid>", or "3"
  };
  std::vector<Gpu> gpus;  // what a process may use: of a GPU in MIG mode, its instances
  int physical = 0;       // GPUs, however they are divided
};

// Asks the driver's own library, libnvidia-ml.so.1, in a process of its own: it may hang on a
// broken driver. Where there is none, counts the folders of /proc/driver/nvidia/gpus. No driver at
// all is no GPU; one that does not work is a ConfigurationError.
absl::StatusOr<GpuInventory> ReadGpus(Duration timeout = std::chrono::seconds(20));

// In the calling process. `library` and `folder` are for tests.
absl::StatusOr<GpuInventory> ReadGpusHere(const char* library = "libnvidia-ml.so.1",
                                          const char* folder = "/proc/driver/nvidia/gpus");

// What CUDA_VISIBLE_DEVICES leaves of them, each as that variable names it; all where it is not
// set (nullopt). A ConfigurationError where it names a GPU twice, or one that is not there.
absl::StatusOr<std::vector<std::string>> VisibleGpus(const GpuInventory& inventory,
                                                     const std::optional<std::string>& variable);

struct GpuUse {
  std::string devices = "auto";  // the job's
  bool servers = false;          // parameter_server: the workers compute, each with one replica
  bool one_device = false;
};

struct GpuPlan {
  // By task, the value of CUDA_VISIBLE_DEVICES; nullopt: as the launcher has it.
  std::vector<std::optional<std::string>> visible;
  std::string note;  // one line for people; empty: there is nothing to say
};

// Divides `gpus` among the tasks that train, neighbours to neighbours; ps and evaluator see none.
// With fewer GPUs than members all train on the CPU, unless the job asks for CUDA: then it is a
// ConfigurationError.
absl::StatusOr<GpuPlan> AssignGpus(const std::vector<std::string>& gpus,
                                   const std::vector<PlannedTask>& tasks, const GpuUse& use);

// `--workers auto`: as many as make one member for each GPU; one worker where there is none.
int WorkersFor(int gpus, const ClusterSize& size);

}  // namespace muster
