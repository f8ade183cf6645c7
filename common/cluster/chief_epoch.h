// How far a chief's epoch may lie above another one that is known.
#pragma once

#include <cstdint>
#include <limits>

namespace muster {

// Each start of a chief takes the next one. One that finds no record of those before it begins with
// 1 and is told by its members; more starts than these no run has had, and a number beyond them is
// damaged or made up. Going on above it could use up all that there are.
constexpr uint64_t kMostEpochsAhead = 1'000'000;

inline bool IsPlausibleEpoch(uint64_t epoch, uint64_t known) {
  return epoch <= known + kMostEpochsAhead && epoch < std::numeric_limits<uint32_t>::max();
}

}  // namespace muster
