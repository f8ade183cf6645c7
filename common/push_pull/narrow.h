// Compression of payloads: single precision rounded to 16 bits (to nearest, ties to even) and back.
// What is finite stays so: numbers beyond the 16 bits' range become the largest that they have.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/options.h"

namespace muster::ps {

// As many elements as `values`. REQUIRES: some compression.
void Narrow(Compression to, std::span<const float> values, uint16_t* out);
void Widen(Compression from, const uint16_t* in, std::span<float> values);

}  // namespace muster::ps
