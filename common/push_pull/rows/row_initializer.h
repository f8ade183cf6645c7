// The initial values of rows of an embedding table. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/rows/embedding_table.h"

namespace muster {

// Writes the initial row of each key, `width` elements, to its location. The bits of a row depend
// neither on other rows nor on the processor.
void Initialize(const Initializer& how, uint64_t seed, int64_t width,
                std::span<const uint64_t> keys, std::span<float* const> rows);

}  // namespace muster
