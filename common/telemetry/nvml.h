// The functions of NVML, the NVIDIA driver's library, that Muster calls. The declarations are
// copied from nvml.h, so builds do not need that header. NVML renames a function whose signature
// changes ("..._v2"). Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace muster {

struct Nvml {
  using Device = void*;
  struct Utilization {
    unsigned gpu = 0, memory = 0;  // Percent.
  };
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;  // Bytes.
  };
  static constexpr int kSuccess = 0, kNoPermission = 4, kDriverNotLoaded = 9;

  // Loads the library, which stays loaded. Returns nullopt if it does not exist or lacks one of the
  // functions that all drivers have.
  static std::optional<Nvml> Load(const char* library);

  // Calls `function` unless it is null. Returns whether it succeeded.
  template <typename... Parameters, typename... Arguments>
  static bool Call(int (*function)(Parameters...), Arguments... arguments) {
    return function != nullptr && function(arguments...) == kSuccess;
  }

  // Returns the UUIDs of the instances of a GPU in MIG mode that this process may use, or nullopt
  // if it is not in that mode.
  std::optional<std::vector<std::string>> InstancesOf(Device gpu) const;

  // All drivers have these functions. They return kSuccess or an error code.
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*text)(int error) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned index, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned size) = nullptr;
  // Null if the driver lacks the function.
  int (*mig_mode)(Device, unsigned* current, unsigned* pending) = nullptr;
  int (*most_instances)(Device, unsigned*) = nullptr;
  int (*instance)(Device, unsigned index, Device*) = nullptr;
  int (*driver_version)(char*, unsigned size) = nullptr;
  int (*name)(Device, char*, unsigned size) = nullptr;
  int (*ecc_errors)(Device, int type, int counter, unsigned long long*) = nullptr;
  int (*remapped_rows)(Device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                       unsigned* failed) = nullptr;
  int (*retired_pages_pending)(Device, int*) = nullptr;
  int (*throttle_reasons)(Device, unsigned long long*) = nullptr;
  int (*temperature)(Device, int sensor, unsigned*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*link_state)(Device, unsigned link, int* active) = nullptr;
};

}  // namespace muster
