#pragma once

#include <fmt/format.h>

#include <random>
#include <string>

namespace muster {

// Returns 16 random hexadecimal digits, for use as a unique name.
inline std::string RandomName() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace muster
