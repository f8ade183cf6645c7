// Converts float32 to a 16-bit type and back, to compress transfers. The rounding is to nearest,
// ties to even. A finite value beyond the range of the 16-bit type becomes the largest finite value
// with the same sign.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/options.h"

namespace muster::push_pull {

// REQUIRES: `out` and `in` have values.size() elements, and the compression is not kNone.
void Narrow(Compression to, std::span<const float> values, uint16_t* out);
void Widen(Compression from, const uint16_t* in, std::span<float> values);

}  // namespace muster::push_pull
