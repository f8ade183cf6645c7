// How far a chief's epoch may lie above another one that is known.
#pragma once

#include <cstdint>

namespace muster {

// Each start of a chief takes the next one. One that finds no record of those before it begins with
// 1 and is told by its members; more starts than these no run has had, and a number beyond them is
// damaged or made up. Going on above it could use up all that there are.
constexpr uint64_t kMostEpochsAhead = 1'000'000;
// Of a run, whatever is known: far from where 32 bits end.
constexpr uint64_t kMostEpochs = 2 * kMostEpochsAhead;

inline bool IsPlausibleEpoch(uint64_t epoch, uint64_t known) {
  return epoch < kMostEpochs && epoch <= known + kMostEpochsAhead;
}

}  // namespace muster
