#include "common/train/replica/devices/devices.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "common/job/cuda_presence.h"

namespace muster {
namespace {

// Parses `text` as a decimal number. Returns false if it has any other characters.
bool ParseInt(std::string_view text, int* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Loads the CUDA part of LibTorch if there is a driver. Without a driver it is not loaded, because
// it costs start-up time and memory. Returns the error, or "" if there is none.
const std::string& LoadCudaSideOfTorch() {
  static const std::string error = [] {
    if (!HasCudaDriver() || dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr)
      return std::string();
    const char* why = dlerror();
    return std::string(why == nullptr ? "dlopen failed" : why);
  }();
  return error;
}

int VisibleGpus() {
  (void)LoadCudaSideOfTorch();
  const auto& hooks = at::detail::getCUDAHooks();
  return hooks.hasCUDA() ? hooks.getNumGPUs() : 0;
}

CudaPresence PresenceHere() {
  CudaPresence presence;
  presence.devices = VisibleGpus();
  presence.driver = HasCudaDriver();
  presence.load_error = LoadCudaSideOfTorch();
  presence.driver_version = DriverVersionHere();
  presence.visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return presence;
}

absl::StatusOr<std::vector<c10::Device>> ParseCuda(std::string_view list, const std::string& text) {
  const int present = VisibleGpus();
  if (present == 0) {
    return ConfigurationError(
        fmt::format("devices is \"{}\", but this process sees no CUDA device (CUDA_VISIBLE_DEVICES "
                    "hides them, or there is no driver{}{}): use \"cpu\"",
                    text, LoadCudaSideOfTorch().empty() ? "" : ", or: ", LoadCudaSideOfTorch()));
  }
  std::vector<c10::Device> devices;
  if (list.empty()) {
    for (int i = 0; i < present; ++i)
      devices.emplace_back(at::kCUDA, static_cast<c10::DeviceIndex>(i));
    return devices;
  }
  while (true) {
    const size_t comma = list.find(',');
    int index = 0;
    if (!ParseInt(list.substr(0, comma), &index) || index < 0) {
      return ConfigurationError(
          fmt::format("devices is \"{}\": write \"cuda:0,1\", numbers with commas", text));
    }
    if (index >= present) {
      return ConfigurationError(
          fmt::format("devices names cuda:{}, but this process sees {} CUDA device(s), 0 to {}",
                      index, present, present - 1));
    }
    const c10::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      return ConfigurationError(
          fmt::format("devices is \"{}\": cuda:{} is named twice", text, index));
    }
    devices.push_back(device);
    if (comma == std::string_view::npos) return devices;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

absl::StatusOr<std::vector<c10::Device>> ParseDevices(const std::string& text) {
  if (text == "auto") {
    if (VisibleGpus() > 0) return ParseCuda("", text);
    MUSTER_RETURN_IF_ERROR(CheckFallback(PresenceHere()));
    return std::vector<c10::Device>{c10::Device(at::kCPU)};
  }
  if (text == "cpu") return std::vector<c10::Device>{c10::Device(at::kCPU)};
  if (text.rfind("cpu:", 0) == 0) {
    int count = 0;
    if (!ParseInt(std::string_view(text).substr(4), &count) || count < 1 || count > 1024) {
      return ConfigurationError(
          fmt::format("devices is \"{}\": write \"cpu:N\" with N replicas from 1 to 1024", text));
    }
    return std::vector<c10::Device>(count, c10::Device(at::kCPU));
  }
  if (text == "cuda") return ParseCuda("", text);
  if (text.rfind("cuda:", 0) == 0) {
    if (text.size() == 5)
      return ConfigurationError(
          "devices is \"cuda:\": name devices, as in \"cuda:0,1\", or write \"cuda\" for all");
    return ParseCuda(std::string_view(text).substr(5), text);
  }
  return ConfigurationError(
      fmt::format("devices is \"{}\": it must be auto, cpu, cpu:N, cuda or cuda:0,1", text));
}

absl::Status CheckDevicesForServers(const std::string& text, size_t devices) {
  if (devices == 1) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "strategy is parameter_server, where each worker has one replica, but devices is \"{}\", "
      "which are {}: start a worker for each of them",
      text, devices));
}

std::vector<int> CudaIndices(const std::vector<c10::Device>& devices) {
  std::vector<int> indices;
  for (const c10::Device& device : devices) {
    if (device.is_cuda()) indices.push_back(device.index());
  }
  return indices;
}

at::Tensor CopyToDevice(const at::Tensor& tensor, const c10::Device& device) {
  if (tensor.device() == device) return tensor;
  // The allocator of pinned memory reuses the memory only after the copy is complete.
  const at::Tensor source = tensor.device().is_cpu() ? tensor.pin_memory() : tensor;
  return source.to(device, /*non_blocking=*/true);
}

void ComputeDeterministically() {
  // cuBLAS reads this variable when it makes its first handle. A value that the user has set stays.
  (void)setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

}  // namespace muster
