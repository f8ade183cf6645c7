// What needs a GPU is skipped, and counted, where there is none; with MUSTER_REQUIRE_GPU=1 it
// fails.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

namespace muster::testing {

inline bool GpuRequired() {
  const char* required = std::getenv("MUSTER_REQUIRE_GPU");
  return required != nullptr && std::string_view(required) == "1";
}

}  // namespace muster::testing

// In a test's body or SetUp: leaves it where `missing` (a condition) holds.
#define MUSTER_NEEDS_GPU(missing, why)                                               \
  if (missing) {                                                                     \
    if (::muster::testing::GpuRequired()) FAIL() << "MUSTER_REQUIRE_GPU=1: " << why; \
    GTEST_SKIP() << why;                                                             \
  }
