// The prefetch distance of loops that gather rows or keys from memory.
#pragma once

#include <cstddef>

namespace muster {

// A loop prefetches element i + kPrefetchDistance when it uses element i.
inline constexpr size_t kPrefetchDistance = 8;

}  // namespace muster
