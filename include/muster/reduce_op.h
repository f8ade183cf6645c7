// How values of several replicas become one.
#pragma once

#include <cstdint>

namespace muster {

enum class ReduceOp : uint8_t { kSum = 0, kMean, kMax };

}  // namespace muster
