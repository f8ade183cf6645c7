// Compresses payloads: converts float32 to a 16-bit type and back. Rounds to nearest, ties to even.
// Finite values stay finite. A value beyond the range of the 16-bit type becomes the largest value
// of its sign.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/options.h"

namespace muster::push_pull {

// REQUIRES: `out` and `in` have as many elements as `values`, and the compression is not kNone.
void Narrow(Compression to, std::span<const float> values, uint16_t* out);
void Widen(Compression from, const uint16_t* in, std::span<float> values);

}  // namespace muster::push_pull
