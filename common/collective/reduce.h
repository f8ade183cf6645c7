// Element-wise reduction kernels over n sources. They reduce in the order given, so that the result
// depends only on that order. They use the widest vector instructions of the host, chosen at run
// time. Thread-safe.
//
// float16 and bfloat16 are summed in float32 and rounded once at the end. int64 wraps around. The
// maximum or minimum of NaN and any other value is NaN.
#pragma once

#include <cstdint>
#include <span>

#include "common/collective/communicator.h"

namespace muster {

struct Reduction {
  ReduceOp op = ReduceOp::kSum;  // kMean is the sum with a divisor.
  int64_t divisor = 1;           // Divides the sum. For int64 the division truncates towards zero.
};

// Computes outs[j][i] = sources[0][i] op sources[1][i] op ... / divisor for i < count, in each of
// `outs`. An out may have the same address as a source, and must not overlap a source otherwise.
// REQUIRES: type != kByte, sources not empty.
void ReduceElements(std::span<void* const> outs, std::span<const void* const> sources,
                    int64_t count, DataType type, Reduction reduction);

}  // namespace muster
