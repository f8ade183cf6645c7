#include <algorithm>

#include "common/telemetry/nvml.h"
#include "common/telemetry/system_stats.h"

namespace muster {
namespace {

constexpr size_t kUuidBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE.

class NvmlReader final : public GpuReader {
 public:
  struct Watched {
    Nvml::Device device = nullptr;
    int index = 0;
    std::string uuid;
  };
  NvmlReader(const Nvml& nvml, std::vector<Watched> watched)
      : nvml_(nvml), watched_(std::move(watched)) {}

  std::vector<proto::GpuStats> Read() override {
    std::vector<proto::GpuStats> all;
    for (const Watched& watched : watched_) {
      proto::GpuStats& gpu = all.emplace_back();
      gpu.set_index(watched.index);
      gpu.set_uuid(watched.uuid);
      Nvml::Utilization utilization;
      // NVML reports no utilization for a GPU in MIG mode.
      const bool known = Nvml::Call(nvml_.utilization, watched.device, &utilization);
      gpu.set_utilization(known ? utilization.gpu / 100.0 : -1);
      gpu.set_memory_access(known ? utilization.memory / 100.0 : -1);
      Nvml::Memory memory;
      const bool measured = Nvml::Call(nvml_.memory, watched.device, &memory);
      gpu.set_memory_used_bytes(measured ? static_cast<int64_t>(memory.used) : -1);
      gpu.set_memory_total_bytes(measured ? static_cast<int64_t>(memory.total) : -1);
    }
    return all;
  }

 private:
  const Nvml nvml_;
  const std::vector<Watched> watched_;
};

}  // namespace

// The library stays loaded, because its threads may outlive a reader.
std::unique_ptr<GpuReader> OpenNvml(const std::vector<std::string>& uuids, const char* library) {
  const std::optional<Nvml> nvml = Nvml::Load(library);
  unsigned count = 0;
  if (!nvml || !Nvml::Call(nvml->init) || !Nvml::Call(nvml->count, &count)) return nullptr;
  std::vector<NvmlReader::Watched> watched;
  for (unsigned i = 0; i < count; ++i) {
    Nvml::Device device = nullptr;
    char uuid[kUuidBytes] = "";
    if (!Nvml::Call(nvml->device, i, &device) ||
        !Nvml::Call(nvml->uuid, device, uuid, unsigned{sizeof uuid}) ||
        std::find(uuids.begin(), uuids.end(), uuid) == uuids.end())
      continue;
    watched.push_back({device, static_cast<int>(i), uuid});
  }
  if (watched.empty()) return nullptr;
  return std::make_unique<NvmlReader>(*nvml, std::move(watched));
}

}  // namespace muster
