// Reduction kernels: element-wise over n sources, in the order given, so that the result depends
// only on that order. The widest vector instructions of the host are chosen at run time. Any
// thread.
//
// float16 and bfloat16 are added up in float32 and rounded once at the end; int64 wraps around.
// The maximum and the minimum of anything and NaN are NaN.
#pragma once

#include <cstdint>
#include <span>

#include "common/collective/communicator.h"

namespace muster {

struct Reduction {
  ReduceOp op = ReduceOp::kSum;  // kMean is the sum with a divisor
  int64_t divisor = 1;           // the sum is divided by it; int64 truncates towards zero
};

// outs[j][i] = sources[0][i] op sources[1][i] op ... / divisor, for i < count, in each of `outs`.
// An out may be one of the sources (the same address), never overlap one otherwise.
// REQUIRES: type != kByte, sources not empty.
void ReduceElements(std::span<void* const> outs, std::span<const void* const> sources,
                    int64_t count, DataType type, Reduction reduction);

}  // namespace muster
