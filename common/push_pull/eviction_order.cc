#include "common/push_pull/eviction_order.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "common/base/hash.h"

namespace muster {
namespace {

constexpr size_t kAhead = 8;      // entries between the fetch of a row and its use
constexpr size_t kSamples = 256;  // of ranks
constexpr size_t kShare = 8;      // one row in so many is looked for at a time
// Beyond the share, of rows that are low as they are made.
constexpr size_t kMostShare = 4;

}  // namespace

EvictionOrder::Rank EvictionOrder::RankOf(uint64_t key, const float* row) const {
  const float* notes = row + shape_.first_note();
  return {NoteIn(notes), shape_.notes.size() > 1 ? NoteIn(notes + 2) : 0, SplitMix64(key), key};
}

void EvictionOrder::Push(const Rank& rank) {
  lowest_.push_back(rank);
  std::push_heap(lowest_.begin(), lowest_.end(), std::greater<>());
}

void EvictionOrder::Add(uint64_t key, const float* row) {
  const Rank rank = RankOf(key, row);
  if (!highest_ || rank > *highest_) {
    if (Scanning() && rank <= scan_->highest) scan_->found.push_back(rank);
    return;
  }
  Push(rank);
  const size_t rows = std::max(kSamples, rows_.size());
  if (lowest_.size() <= rows / kMostShare) return;
  const auto last = lowest_.begin() + static_cast<int64_t>(rows / kShare);
  std::nth_element(lowest_.begin(), last, lowest_.end());
  highest_ = *last;
  scan_.reset();  // it passed over those that are forgotten here
  lowest_.erase(last + 1, lowest_.end());
  std::make_heap(lowest_.begin(), lowest_.end(), std::greater<>());
}

// From some ranks, how high those that are looked for may be. Which ones these are changes nothing
// but how many are found.
void EvictionOrder::Begin() {
  const auto& entries = rows_.entries();
  const size_t step = std::max<size_t>(1, entries.size() / (2 * kSamples));
  visited_ += static_cast<int64_t>(entries.size() / step);
  std::vector<Rank> samples;
  for (size_t at = 0; at < entries.size(); at += step) {
    if (entries[at].row == nullptr) continue;
    const Rank rank = RankOf(entries[at].key, entries[at].row);
    if (!highest_ || rank > *highest_) samples.push_back(rank);
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Rank highest = {kMost, kMost, 0, 0};
  if (!samples.empty()) {
    const auto at = samples.begin() + static_cast<int64_t>(samples.size() / kShare);
    std::nth_element(samples.begin(), at, samples.end());
    highest = *at;
  }
  scan_ = Scan{highest, entries.size(), entries.size(), {}};
}

void EvictionOrder::Advance(size_t count) {
  const auto& entries = rows_.entries();
  Scan& scan = *scan_;
  const size_t end = scan.left - std::min(scan.left, count);
  visited_ += static_cast<int64_t>(scan.left - end);
  for (; scan.left > end; --scan.left) {
    const size_t at = scan.left - 1;
    if (at >= kAhead && entries[at - kAhead].row != nullptr)
      __builtin_prefetch(entries[at - kAhead].row + shape_.first_note());
    if (entries[at].row == nullptr) continue;
    const Rank rank = RankOf(entries[at].key, entries[at].row);
    if (rank <= scan.highest && (!highest_ || rank > *highest_)) scan.found.push_back(rank);
  }
  if (scan.left > 0) return;
  lowest_.insert(lowest_.end(), scan.found.begin(), scan.found.end());
  std::make_heap(lowest_.begin(), lowest_.end(), std::greater<>());
  highest_ = scan.highest;
  scan_.reset();
}

// So that the next ones are known when those before are used up.
void EvictionOrder::LookAhead(size_t added, size_t room) {
  if (!Scanning()) {
    const size_t few = rows_.size() / (2 * kShare);
    if (lowest_.size() > few || room > few) return;
    Begin();
  }
  const size_t until = std::max<size_t>(1, lowest_.size() + room);
  Advance(added * (scan_->left / until + 1));
}

RowStorage::Entry EvictionOrder::Next() {
  while (true) {
    while (lowest_.empty()) {
      if (!Scanning()) Begin();
      Advance(scan_->left);
    }
    std::pop_heap(lowest_.begin(), lowest_.end(), std::greater<>());
    const Rank rank = lowest_.back();
    lowest_.pop_back();
    LookAhead(1, 0);
    const RowStorage::Entry& entry = rows_.At(rank.key, rank.hash);
    if (entry.row == nullptr) continue;
    const Rank now = RankOf(rank.key, entry.row);
    if (now == rank) return entry;
    if (now <= *highest_) Push(now);
  }
}

}  // namespace muster
