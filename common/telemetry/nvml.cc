#include "common/telemetry/nvml.h"

#include <dlfcn.h>

namespace muster {
namespace {

template <typename Function>
bool FindFunction(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

std::optional<Nvml> Nvml::Load(const char* library) {
  void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return std::nullopt;
  Nvml nvml;
  const auto find = [loaded](const char* name, auto* function) {
    return FindFunction(loaded, name, function);
  };
  if (!find("nvmlInit_v2", &nvml.init) || !find("nvmlShutdown", &nvml.shutdown) ||
      !find("nvmlErrorString", &nvml.text) || !find("nvmlDeviceGetCount_v2", &nvml.count) ||
      !find("nvmlDeviceGetHandleByIndex_v2", &nvml.device) ||
      !find("nvmlDeviceGetUUID", &nvml.uuid))
    return std::nullopt;
  find("nvmlDeviceGetMigMode", &nvml.mig_mode);
  find("nvmlDeviceGetMaxMigDeviceCount", &nvml.most_instances);
  find("nvmlDeviceGetMigDeviceHandleByIndex", &nvml.instance);
  find("nvmlSystemGetDriverVersion", &nvml.driver_version);
  find("nvmlDeviceGetName", &nvml.name);
  find("nvmlDeviceGetTotalEccErrors", &nvml.ecc_errors);
  find("nvmlDeviceGetRemappedRows", &nvml.remapped_rows);
  find("nvmlDeviceGetRetiredPagesPendingStatus", &nvml.retired_pages_pending);
  find("nvmlDeviceGetCurrentClocksThrottleReasons", &nvml.throttle_reasons);
  find("nvmlDeviceGetTemperature", &nvml.temperature);
  find("nvmlDeviceGetUtilizationRates", &nvml.utilization);
  find("nvmlDeviceGetMemoryInfo", &nvml.memory);
  find("nvmlDeviceGetNvLinkState", &nvml.link_state);
  return nvml;
}

std::optional<std::vector<std::string>> Nvml::InstancesOf(Device gpu) const {
  unsigned mode = 0, pending = 0, most = 0;
  if (!Call(mig_mode, gpu, &mode, &pending) || mode != 1 || !Call(most_instances, gpu, &most))
    return std::nullopt;
  std::vector<std::string> uuids;
  for (unsigned i = 0; i < most; ++i) {
    Device part = nullptr;
    char text[128] = {};
    // If it has no handle, the instance does not exist, or belongs to another container.
    if (Call(instance, gpu, i, &part) && Call(uuid, part, text, unsigned{sizeof text}))
      uuids.push_back(text);
  }
  return uuids;
}

}  // namespace muster
