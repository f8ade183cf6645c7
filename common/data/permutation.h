// A permutation of [0, size), as a function of (seed, salt, epoch). The permutation is cheap to
// construct, and needs no table of all elements.
#pragma once

#include <array>
#include <cstdint>

namespace muster::data {

// Up to 32 elements are permuted by a Fisher-Yates shuffle. A larger number of elements is permuted
// by an alternating Feistel network over Z_a x Z_b, where a * b is just above `size`. If a result
// is outside [0, size), the network is applied again, until the result is inside (J. Black, P.
// Rogaway: Ciphers with Arbitrary Finite Domains, 2002). Immutable. REQUIRES: size >= 0.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, uint64_t salt, int64_t epoch);
  // REQUIRES: 0 <= index < size.
  int64_t operator()(int64_t index) const;

 private:
  static constexpr int kRounds = 8;
  static constexpr int64_t kTable = 32;
  uint64_t Encrypt(uint64_t value) const;

  uint64_t size_, a_ = 1, b_ = 1;
  std::array<uint64_t, kRounds> keys_{};
  std::array<uint8_t, kTable> table_{};
};

}  // namespace muster::data
