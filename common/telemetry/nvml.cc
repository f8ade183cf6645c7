// Reads GPUs through NVML, which is loaded at run time. The declarations below are copied from
// nvml.h. NVML's functions keep their binary interface: a changed function gets a new name
// ("..._v2").
#include <dlfcn.h>

#include <algorithm>

#include "common/telemetry/system_stats.h"

namespace muster {
namespace {

using Device = void*;
struct Utilization {
  unsigned gpu = 0, memory = 0;  // Percent.
};
struct Memory {
  unsigned long long total = 0, free = 0, used = 0;  // Bytes.
};
constexpr int kSuccess = 0;
constexpr size_t kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE.

struct Functions {
  int (*init)();
  int (*count)(unsigned*);
  int (*by_index)(unsigned, Device*);
  int (*uuid)(Device, char*, unsigned);
  int (*utilization)(Device, Utilization*);
  int (*memory)(Device, Memory*);
};

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool FindAll(void* library, Functions* nvml) {
  return Find(library, "nvmlInit_v2", &nvml->init) &&
         Find(library, "nvmlDeviceGetCount_v2", &nvml->count) &&
         Find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml->by_index) &&
         Find(library, "nvmlDeviceGetUUID", &nvml->uuid) &&
         Find(library, "nvmlDeviceGetUtilizationRates", &nvml->utilization) &&
         Find(library, "nvmlDeviceGetMemoryInfo", &nvml->memory);
}

class NvmlReader final : public GpuReader {
 public:
  struct Watched {
    Device device = nullptr;
    int index = 0;
    std::string uuid;
  };
  NvmlReader(const Functions& nvml, std::vector<Watched> watched)
      : nvml_(nvml), watched_(std::move(watched)) {}

  std::vector<proto::GpuStats> Read() override {
    std::vector<proto::GpuStats> all;
    for (const Watched& watched : watched_) {
      proto::GpuStats& gpu = all.emplace_back();
      gpu.set_index(watched.index);
      gpu.set_uuid(watched.uuid);
      Utilization utilization;
      // NVML reports no utilization for a GPU in MIG mode.
      const bool known = nvml_.utilization(watched.device, &utilization) == kSuccess;
      gpu.set_utilization(known ? utilization.gpu / 100.0 : -1);
      gpu.set_memory_access(known ? utilization.memory / 100.0 : -1);
      Memory memory;
      const bool measured = nvml_.memory(watched.device, &memory) == kSuccess;
      gpu.set_memory_used_bytes(measured ? static_cast<int64_t>(memory.used) : -1);
      gpu.set_memory_total_bytes(measured ? static_cast<int64_t>(memory.total) : -1);
    }
    return all;
  }

 private:
  const Functions nvml_;
  const std::vector<Watched> watched_;
};

}  // namespace

// The library stays loaded, because its threads may outlive a reader.
std::unique_ptr<GpuReader> OpenNvml(const std::vector<std::string>& uuids, const char* library) {
  void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  Functions nvml{};
  unsigned count = 0;
  if (loaded == nullptr || !FindAll(loaded, &nvml) || nvml.init() != kSuccess ||
      nvml.count(&count) != kSuccess)
    return nullptr;
  std::vector<NvmlReader::Watched> watched;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    char uuid[kUuidBytes] = "";
    if (nvml.by_index(i, &device) != kSuccess || nvml.uuid(device, uuid, sizeof uuid) != kSuccess ||
        std::find(uuids.begin(), uuids.end(), uuid) == uuids.end())
      continue;
    watched.push_back({device, static_cast<int>(i), uuid});
  }
  if (watched.empty()) return nullptr;
  return std::make_unique<NvmlReader>(nvml, std::move(watched));
}

}  // namespace muster
