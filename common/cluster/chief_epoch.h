// The limits within which an epoch that a chief or member reports is plausible.
#pragma once

#include <cstdint>

namespace muster {

// Each start of a chief takes the next epoch. A chief that finds no record of earlier ones begins
// with 1 and learns the current epoch from its members. No run has had this many starts, so a
// number further ahead is damaged or forged. Continuing above it could exhaust the numbers.
constexpr uint64_t kMostEpochsAhead = 1'000'000;
// The limit for a whole run, whatever epoch is known. It is far below 2^32.
constexpr uint64_t kMostEpochs = 2 * kMostEpochsAhead;

inline bool IsPlausibleEpoch(uint64_t epoch, uint64_t known) {
  return epoch < kMostEpochs && epoch <= known + kMostEpochsAhead;
}

}  // namespace muster
