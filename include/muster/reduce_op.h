// The operations that reduce the values of all replicas (devices) to one value.
#pragma once

#include <cstdint>

namespace muster {

enum class ReduceOp : uint8_t { kSum = 0, kMean, kMax, kMin };

}  // namespace muster
