// Stands in for libnvidia-ml.so.1. FAKE_GPU_HEALTH has a word for each GPU, its parts separated by
// commas, in any order:
//   ok          nothing wrong         ecc=3        memory errors that were not corrected
//   pending     rows to be replaced   failed       rows that cannot be replaced
//   reasons=64  clocks held down      links=4/2    NVLinks that are up, and down
//   init=18     nvmlInit fails        hang         it never comes back
//   old         a driver without the newer functions
//   mig=2       MIG mode, with so many instances     lost         it fell off the bus
//   denied      one of another container
// The UUIDs are GPU-0, GPU-1, ..., those of the instances of GPU-1 are MIG-10, MIG-11, ...
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Gpu {
  long long errors = 0;
  unsigned pending = 0, failed = 0, up = 0, down = 0;
  unsigned long long reasons = 1;  // Idle.
  bool old = false, mig = false;
  int error = 0;  // Of its handle.
  std::string uuid;
  std::vector<Gpu> instances;
};
std::vector<Gpu> gpus;

Gpu& Of(void* device) { return *static_cast<Gpu*>(device); }
long Number(const std::string& part) { return std::atol(part.c_str() + part.find('=') + 1); }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* text = std::getenv("FAKE_GPU_HEALTH");
  std::istringstream words(text == nullptr ? "init=9" : text);
  for (std::string word; words >> word;) {
    std::istringstream parts(word);
    Gpu gpu;
    for (std::string part; std::getline(parts, part, ',');) {
      if (part == "hang")
        while (true) pause();
      if (part.rfind("init=", 0) == 0) return static_cast<int>(Number(part));
      if (part.rfind("ecc=", 0) == 0) gpu.errors = Number(part);
      if (part.rfind("reasons=", 0) == 0)
        gpu.reasons = static_cast<unsigned long long>(Number(part));
      if (part.rfind("links=", 0) == 0) {
        gpu.up = static_cast<unsigned>(Number(part));
        gpu.down = static_cast<unsigned>(std::atol(part.c_str() + part.find('/') + 1));
      }
      gpu.pending = gpu.pending || part == "pending";
      gpu.failed = gpu.failed || part == "failed";
      gpu.old = gpu.old || part == "old";
      if (part == "lost") gpu.error = 15;
      if (part == "denied") gpu.error = 4;
      if (part.rfind("mig=", 0) == 0) {
        gpu.mig = true;
        gpu.instances.resize(static_cast<size_t>(Number(part)));
      }
    }
    const std::string index = std::to_string(gpus.size());
    gpu.uuid = "GPU-" + index;
    for (size_t i = 0; i < gpu.instances.size(); ++i)
      gpu.instances[i].uuid = "MIG-" + index + std::to_string(i);
    gpus.push_back(gpu);
  }
  return 0;
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int error) {
  if (error == 15) return "GPU is lost";
  return error == 18 ? "Driver/library version mismatch" : "some other error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "580.65.06", size);
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(gpus.size());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &gpus[index];
  return gpus[index].error;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::strncpy(text, "NVIDIA Fake", size);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::strncpy(text, Of(device).uuid.c_str(), size);
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = Of(device).mig ? 1 : 0;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** instance) {
  if (index >= Of(device).instances.size()) return 6;
  *instance = &Of(device).instances[index];
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int kind, int counter, unsigned long long* count) {
  if (Of(device).old) return 3;  // Not supported.
  *count = kind == 1 && counter == 0 ? static_cast<unsigned long long>(Of(device).errors) : 0;
  return 0;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  if (Of(device).old) return 3;
  *corrected = *uncorrected = 0;
  *pending = Of(device).pending;
  *failed = Of(device).failed;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = Of(device).reasons;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* degrees) {
  *degrees = 91;
  return 0;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) {
  if (link >= Of(device).up + Of(device).down) return 2;  // No such link.
  *active = link < Of(device).up;
  return 0;
}

}  // extern "C"
