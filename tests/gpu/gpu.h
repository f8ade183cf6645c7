// Skips tests that need more GPUs than the host has. The environment variable MUSTER_REQUIRE_GPU is
// the number of GPUs that the host must have. A test that needs no more than this number fails
// instead of being skipped.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

namespace muster::testing {

inline int GpusRequired() {
  const char* required = std::getenv("MUSTER_REQUIRE_GPU");
  return required == nullptr ? 0 : std::atoi(required);
}

}  // namespace muster::testing

// For a test's body or SetUp. Ends the test if the condition `missing` is true, which says that the
// host has fewer than `gpus` GPUs.
#define MUSTER_NEEDS_GPUS(missing, gpus, why)                                                 \
  if (missing) {                                                                              \
    if (::muster::testing::GpusRequired() >= (gpus)) FAIL() << "MUSTER_REQUIRE_GPU: " << why; \
    GTEST_SKIP() << why;                                                                      \
  }
#define MUSTER_NEEDS_GPU(missing, why) MUSTER_NEEDS_GPUS(missing, 1, why)
