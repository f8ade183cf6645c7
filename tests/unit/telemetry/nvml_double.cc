// A double of NVML for a test: three GPUs, of the last of which it knows nothing but the UUID.
#include <cstring>

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "not supported"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<unsigned long>(index + 1));
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned) {
  std::strcpy(uuid, "GPU-0");
  uuid[4] = static_cast<char>('0' + reinterpret_cast<unsigned long>(device) - 1);
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  if (reinterpret_cast<unsigned long>(device) == 3) return 3;  // NVML_ERROR_NOT_SUPPORTED.
  rates[0] = 75;
  rates[1] = 40;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  if (reinterpret_cast<unsigned long>(device) == 3) return 3;
  memory[0] = 80ULL << 30;
  memory[1] = 79ULL << 30;
  memory[2] = 1ULL << 30;
  return 0;
}
}
