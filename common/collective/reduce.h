// Kernels that reduce several arrays element by element. They reduce the sources in the given
// order, so the same order gives the same result on every host. At run time, they choose the widest
// vector instructions of the host. Thread-safe.
//
// float16 and bfloat16 are summed in float32 and rounded once at the end. int64 wraps around. The
// maximum or minimum of NaN and any other value is NaN.
#pragma once

#include <cstdint>
#include <span>

#include "common/collective/communicator.h"

namespace muster::collective {

struct Reduction {
  ReduceOp op = ReduceOp::kSum;  // kMean has the effect of kSum.
  // The sum is divided by `divisor`, for a mean. The division of int64 truncates towards zero.
  int64_t divisor = 1;
};

// Computes outs[j][i] = (sources[0][i] op sources[1][i] op ...) / divisor for all j and all i <
// count. An output may have the same address as a source. All other overlaps of outputs and sources
// are forbidden. REQUIRES: type != kByte, and `sources` is not empty.
void ReduceElements(std::span<void* const> outs, std::span<const void* const> sources,
                    int64_t count, DataType type, Reduction reduction);

}  // namespace muster::collective
