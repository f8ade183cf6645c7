// What a row of an embedding table begins with. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>

#include "common/push_pull/embedding_table.h"

namespace muster {

void Initialize(const Initializer& how, uint64_t seed, uint64_t key, std::span<float> row);

}  // namespace muster
