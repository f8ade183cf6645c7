// The functions of NVML (the library of NVIDIA's driver) that Muster calls, loaded at run time. The
// declarations are copied from NVIDIA's nvml.h, so that a build does not need nvml.h. The copies
// stay valid with newer drivers, because NVML gives a function a new name ("..._v2") when its
// signature changes. Thread-safe.
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

  // Loads the library and never unloads it. Returns nullopt if the library is missing, or lacks a
  // function that all drivers have.
  static std::optional<Nvml> Load(const char* library);

  // Calls `function`. Returns true if the call succeeds, and false if it fails or `function` is
  // null.
  template <typename... Parameters, typename... Arguments>
  static bool Call(int (*function)(Parameters...), Arguments... arguments) {
    return function != nullptr && function(arguments...) == kSuccess;
  }

  // Returns the UUIDs of the MIG instances of `gpu` that this process may use. Returns nullopt if
  // `gpu` is not in MIG mode.
  std::optional<std::vector<std::string>> InstancesOf(Device gpu) const;

  // All drivers have these functions. An int result is kSuccess or an error code.
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*text)(int error) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned index, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned size) = nullptr;
  // Each of these functions is null if the driver lacks it.
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
