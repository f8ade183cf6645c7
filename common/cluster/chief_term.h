// Plausibility limits for the chief's epoch (its term), as a chief or member reports it.
#pragma once

#include <cstdint>

namespace muster {

// A chief takes the next epoch each time it starts. A chief that finds no record of earlier epochs
// takes 1, and learns the current epoch from its members. No chief starts this many times, so an
// epoch further ahead of the known one is damaged or forged. Adopting it could exhaust the numbers.
constexpr uint64_t kMaxTermsAhead = 1'000'000;
// The upper limit of all epochs. It is far below 2^32.
constexpr uint64_t kMaxTerms = 2 * kMaxTermsAhead;

inline bool IsPlausibleTerm(uint64_t term, uint64_t known) {
  return term < kMaxTerms && term <= known + kMaxTermsAhead;
}

}  // namespace muster
