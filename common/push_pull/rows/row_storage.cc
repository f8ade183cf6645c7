#include "common/push_pull/rows/row_storage.h"

#include <algorithm>
#include <utility>

namespace muster::push_pull {
namespace {

constexpr int64_t kFirstSlab = 4 << 10, kLargestSlab = 8 << 20;  // Bytes.

}  // namespace

RowStorage::RowStorage(int64_t floats, int64_t most) : floats_(floats), most_(most), entries_(64) {}

void RowStorage::NewSlab() {
  const int64_t row = 4 * floats_;
  int64_t rows = std::min(kLargestSlab, kFirstSlab << std::min<size_t>(slabs_.size(), 11)) / row;
  if (most_ > 0) rows = std::min(rows, most_);
  const size_t bytes = HugePageBlockSize(static_cast<size_t>(std::max<int64_t>(rows, 1) * row));
  slabs_.reserve(slabs_.size() + 1);  // So that emplace_back cannot throw and lose the memory.
  slabs_.emplace_back(static_cast<float*>(AllocateInHugePages(bytes)), Free{bytes});
  next_ = slabs_.back().get();
  unused_ = static_cast<int64_t>(bytes) / row;
}

float* RowStorage::NewRow() {
  if (!left_.empty()) {
    float* row = left_.back();
    left_.pop_back();
    return row;
  }
  if (unused_ == 0) NewSlab();
  --unused_;
  return std::exchange(next_, next_ + floats_);
}

float* RowStorage::Put(const Entry& free, uint64_t key) {
  // An exception changes nothing.
  auto place = static_cast<size_t>(&free - entries_.data());
  if (2 * (size_ + 1) > entries_.size()) {
    Grow();
    place = PlaceOf(key, SplitMix64(key));
  }
  float* row = NewRow();
  entries_[place] = {key, row};
  ++size_;
  return row;
}

void RowStorage::Grow() {
  Entries old(2 * entries_.size());
  old.swap(entries_);
  for (const Entry& entry : old)
    if (entry.row != nullptr) entries_[PlaceOf(entry.key, SplitMix64(entry.key))] = entry;
}

// Moves entries after the hole into it if they could not be found past the hole.
void RowStorage::Erase(uint64_t key) {
  size_t hole = PlaceOf(key, SplitMix64(key));
  left_.push_back(entries_[hole].row);
  --size_;
  for (size_t at = (hole + 1) & Mask(); entries_[at].row != nullptr; at = (at + 1) & Mask()) {
    const size_t home = SplitMix64(entries_[at].key) & Mask();
    if (((at - home) & Mask()) < ((at - hole) & Mask())) continue;
    entries_[hole] = entries_[at];
    hole = at;
  }
  entries_[hole] = {};
}

}  // namespace muster::push_pull
