// What rows of an embedding table begin with. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/embedding_table.h"

namespace muster {

// The row of each key, of `width` elements, at its place. A row's bits depend neither on the others
// nor on the processor.
void Initialize(const Initializer& how, uint64_t seed, int64_t width,
                std::span<const uint64_t> keys, std::span<float* const> rows);

}  // namespace muster
