// The operations that reduce values over all replicas.
#pragma once

#include <cstdint>

namespace muster {

enum class ReduceOp : uint8_t { kSum = 0, kMean, kMax, kMin };

}  // namespace muster
