#include "common/push_pull/rows/key_index.h"

#include <algorithm>

#include "common/base/hash.h"
#include "common/base/prefetch.h"

namespace muster::push_pull {
namespace {

constexpr size_t kFirstEntries = 1024;

}  // namespace

size_t KeyIndex::PlaceOf(uint64_t key) const {
  const size_t mask = entries_.size() - 1;
  size_t at = SplitMix64(key) & mask;
  while (entries_[at].round == round_ && entries_[at].key != key) at = (at + 1) & mask;
  return at;
}

void KeyIndex::Grow() {
  entries_.assign(std::max(kFirstEntries, 2 * entries_.size()), Entry{});
  round_ = 1;
  for (size_t i = 0; i < keys_.size(); ++i)
    At(keys_[i]) = {keys_[i], static_cast<uint32_t>(i), round_};
}

void KeyIndex::Add(std::span<const uint64_t> keys, std::vector<uint32_t>* numbers) {
  numbers->resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (2 * (keys_.size() + 1) > entries_.size()) Grow();
    if (i + kPrefetchDistance < keys.size())
      __builtin_prefetch(
          &entries_[SplitMix64(keys[i + kPrefetchDistance]) & (entries_.size() - 1)]);
    Entry& entry = At(keys[i]);
    if (entry.round != round_) {
      entry = {keys[i], static_cast<uint32_t>(keys_.size()), round_};
      keys_.push_back(keys[i]);
    }
    (*numbers)[i] = entry.number;
  }
}

void KeyIndex::Find(std::span<const uint64_t> keys, std::vector<uint32_t>* numbers) const {
  numbers->assign(keys.size(), kNone);
  if (keys_.empty()) return;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i + kPrefetchDistance < keys.size())
      __builtin_prefetch(
          &entries_[SplitMix64(keys[i + kPrefetchDistance]) & (entries_.size() - 1)]);
    const Entry& entry = entries_[PlaceOf(keys[i])];
    if (entry.round == round_) (*numbers)[i] = entry.number;
  }
}

void KeyIndex::Clear() {
  keys_.clear();
  if (++round_ != 0) return;
  std::fill(entries_.begin(), entries_.end(), Entry{});
  round_ = 1;
}

void KeySums::Add(std::span<const uint64_t> keys, const float* gradients) {
  const auto width = static_cast<size_t>(width_);
  index_.Add(keys, &numbers_);
  sums_.resize(index_.keys().size() * width);
  for (size_t i = 0; i < keys.size(); ++i) {
    float* __restrict sum = sums_.data() + numbers_[i] * width;
    const float* __restrict gradient = gradients + i * width;
    for (size_t j = 0; j < width; ++j) sum[j] += gradient[j];
  }
}

void KeySums::Clear() {
  index_.Clear();
  sums_.clear();
}

}  // namespace muster::push_pull
