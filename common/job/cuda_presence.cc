#include "common/job/cuda_presence.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "common/job/job.h"

namespace muster {
namespace {

// Returns whether a CUDA_VISIBLE_DEVICES with the value `visible` hides all devices: it is empty or
// begins with something that is not a device.
bool Hides(const char* visible) {
  if (visible == nullptr) return false;
  const std::string_view text(visible);
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return true;
  const char c = text[first];
  return (c < '0' || c > '9') && !text.substr(first).starts_with("GPU-") &&
         !text.substr(first).starts_with("MIG-");
}

}  // namespace

bool HasCudaDriver() { return access("/dev/nvidiactl", F_OK) == 0; }

absl::Status CheckFallback(const CudaPresence& presence) {
  if (!presence.driver || presence.devices > 0 || Hides(presence.visible)) return absl::OkStatus();
  const std::string driver = presence.driver_version.empty()
                                 ? "an NVIDIA driver"
                                 : fmt::format("NVIDIA driver {}", presence.driver_version);
  if (!presence.load_error.empty()) {
    return ConfigurationError(
        fmt::format("devices is \"auto\" and this host has {}, but CUDA's half of LibTorch cannot "
                    "be loaded: {}; "
                    "mend that, or set devices to \"cpu\"",
                    driver, presence.load_error));
  }
  return ConfigurationError(fmt::format(
      "devices is \"auto\" and this host has {}, but CUDA finds no device: this LibTorch is built "
      "for CUDA 13, which takes driver 580 or newer (see what nvidia-smi says); mend that, or set "
      "devices to \"cpu\"",
      driver));
}

// `text` has a line such as "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06
// Release Build ...".
std::string DriverVersion(const std::string& text) {
  std::istringstream words(text.substr(0, text.find('\n')));
  for (std::string word; words >> word;) {
    if (word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
  }
  return "";
}

std::string DriverVersionHere() {
  std::ifstream file("/proc/driver/nvidia/version");
  return DriverVersion({std::istreambuf_iterator<char>(file), {}});
}

Duration FormationTimeout(Duration of_job, bool cuda) {
  constexpr Duration kCuda = std::chrono::seconds(120);
  return cuda && of_job == Timeouts().formation ? kCuda : of_job;
}

bool MayUseCuda(const std::string& devices) {
  if (devices != "auto") return devices.starts_with("cuda");
  return HasCudaDriver() && !Hides(std::getenv("CUDA_VISIBLE_DEVICES"));
}

void UseInterface(const std::string& interface) {
  // With "=", NCCL compares the whole name instead of a prefix.
  if (!interface.empty())
    (void)setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), /*overwrite=*/0);
}

}  // namespace muster
