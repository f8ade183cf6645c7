// Stands in for libnvidia-ml.so.1. FAKE_GPUS lists the GPUs, with spaces between them:
//   GPU-1                  a GPU
//   GPU-1=MIG-1,MIG-2      a GPU in MIG mode, and its instances
//   denied                 one of another container
//   init:18                nvmlInit fails with that number      hang   it never comes back
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Gpu {
  std::string uuid;
  std::vector<Gpu> instances;
};
std::vector<Gpu> gpus;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* text = std::getenv("FAKE_GPUS");
  std::istringstream words(text == nullptr ? "init:9" : text);
  for (std::string word; words >> word;) {
    if (word == "hang") {
      while (true) pause();
    }
    if (word.rfind("init:", 0) == 0) return std::atoi(word.c_str() + 5);
    std::istringstream parts(word);
    Gpu gpu;
    std::getline(parts, gpu.uuid, '=');
    for (std::string instance; std::getline(parts, instance, ',');)
      gpu.instances.push_back({instance, {}});
    gpus.push_back(gpu);
  }
  return 0;
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int error) {
  return error == 18 ? "Driver/library version mismatch" : "some other error";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(gpus.size());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &gpus[index];
  return gpus[index].uuid == "denied" ? 4 : 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  std::strncpy(text, static_cast<Gpu*>(device)->uuid.c_str(), size);
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = static_cast<Gpu*>(device)->instances.empty() ? 0 : 1;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** instance) {
  auto& instances = static_cast<Gpu*>(device)->instances;
  if (index >= instances.size()) return 6;
  *instance = &instances[index];
  return 0;
}

}  // extern "C"
