// The initial values of rows of an embedding table. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/rows/embedding_table.h"

namespace muster::push_pull {

// Writes the initial values of each key's row, `width` elements, to the pointer in `rows`. The
// values have the same bits on every processor and do not depend on other keys.
void Initialize(const Initializer& how, uint64_t seed, int64_t width,
                std::span<const uint64_t> keys, std::span<float* const> rows);

}  // namespace muster::push_pull
