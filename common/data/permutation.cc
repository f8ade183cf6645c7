#include "common/data/permutation.h"

#include <cmath>

#include "common/base/hash.h"

namespace muster::data {
namespace {

__extension__ using Wide = unsigned __int128;

// Maps a random word to [0, bound) without a division.
uint64_t Scale(uint64_t word, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<Wide>(word) * bound) >> 64);
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed, uint64_t salt, int64_t epoch)
    : size_(static_cast<uint64_t>(size)) {
  uint64_t key = SplitMix64(SplitMix64(SplitMix64(seed) ^ salt) ^ static_cast<uint64_t>(epoch));
  if (size <= kTable) {
    for (int64_t i = 0; i < size; ++i) {
      key = SplitMix64(key);
      const uint64_t j = Scale(key, static_cast<uint64_t>(i) + 1);
      table_[i] = table_[j];
      table_[j] = static_cast<uint8_t>(i);
    }
    return;
  }
  a_ = static_cast<uint64_t>(std::ceil(std::sqrt(static_cast<double>(size))));
  b_ = (size_ + a_ - 1) / a_;
  for (uint64_t& round_key : keys_) round_key = key = SplitMix64(key);
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  uint64_t right = value / a_, left = value - right * a_;
  for (int round = 0; round < kRounds; round += 2) {
    left += Scale(SplitMix64(right ^ keys_[round]), a_);
    if (left >= a_) left -= a_;
    right += Scale(SplitMix64(left ^ keys_[round + 1]), b_);
    if (right >= b_) right -= b_;
  }
  return right * a_ + left;
}

int64_t Permutation::operator()(int64_t index) const {
  if (size_ <= static_cast<uint64_t>(kTable)) return table_[index];
  // The loop ends, because at the latest the permutation's cycle returns to `index`.
  uint64_t value = Encrypt(static_cast<uint64_t>(index));
  while (value >= size_) value = Encrypt(value);
  return static_cast<int64_t>(value);
}

}  // namespace muster::data
