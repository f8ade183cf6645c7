// Computes the initial values of the rows of an embedding table. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/rows/embedding_table.h"

namespace muster::push_pull {

// Writes the initial values of the row of keys[i] to the memory at rows[i]. A row has `width`
// elements. The values depend only on `how`, `seed`, `width` and the key, and have the same bits on
// every processor.
void Initialize(const Initializer& how, uint64_t seed, int64_t width,
                std::span<const uint64_t> keys, std::span<float* const> rows);

}  // namespace muster::push_pull
