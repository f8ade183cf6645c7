// Limits for the term that a chief or another task reports. A term is the number of a chief. It is
// above the terms of all earlier chiefs of the run. Messages and files call the term "epoch".
#pragma once

#include <cstdint>

namespace muster {

// The largest plausible difference between a reported term and the term that the receiver knows. A
// chief that finds no record of earlier chiefs begins with term 1, and learns the current term from
// the other tasks. A run never has a million chiefs, so a term beyond the limit is damaged or
// forged. If a chief adopted such a term, later chiefs might find no higher term.
constexpr uint64_t kMaxTermsAhead = 1'000'000;
// The upper limit of all terms. The limit is far below 2^32.
constexpr uint64_t kMaxTerms = 2 * kMaxTermsAhead;

inline bool IsPlausibleTerm(uint64_t term, uint64_t known) {
  return term < kMaxTerms && term <= known + kMaxTermsAhead;
}

}  // namespace muster
