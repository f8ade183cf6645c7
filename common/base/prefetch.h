// How far loops that gather rows or keys from memory prefetch.
#pragma once

#include <cstddef>

namespace muster {

// Elements between the prefetch of one and its use.
inline constexpr size_t kPrefetchDistance = 8;

}  // namespace muster
