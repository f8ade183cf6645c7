// What needs a GPU is skipped, and counted, where there is none. MUSTER_REQUIRE_GPU says how many
// the host must have: what so many can run fails then instead.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

namespace muster::testing {

inline int GpusRequired() {
  const char* required = std::getenv("MUSTER_REQUIRE_GPU");
  return required == nullptr ? 0 : std::atoi(required);
}

}  // namespace muster::testing

// In a test's body or SetUp: leaves it where `missing` (a condition) holds, for the host has fewer
// than `gpus`.
#define MUSTER_NEEDS_GPUS(missing, gpus, why)                                                 \
  if (missing) {                                                                              \
    if (::muster::testing::GpusRequired() >= (gpus)) FAIL() << "MUSTER_REQUIRE_GPU: " << why; \
    GTEST_SKIP() << why;                                                                      \
  }
#define MUSTER_NEEDS_GPU(missing, why) MUSTER_NEEDS_GPUS(missing, 1, why)
