#include "common/push_pull/eviction_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "common/base/hash.h"
#include "common/push_pull/embedding_table.h"

namespace muster {
namespace {

EmbeddingTable::Options Capped(Eviction eviction, int64_t rows) {
  return {.width = 2,
          .initializer = {Initializer::Kind::kZeros},
          .rule = SgdSpec{},
          .shards = 1,
          .limits = {.max_rows = rows, .eviction = eviction}};
}

// What the documentation says, row by row.
class Reference {
 public:
  Reference(Eviction eviction, size_t cap) : eviction_(eviction), cap_(cap) {}
  void Push(const std::vector<uint64_t>& keys) {
    ++step_;
    for (const uint64_t key : keys) {
      Notes& notes = rows_.try_emplace(key, Notes{step_, step_, 0}).first->second;
      notes.updated = step_;
      ++notes.count;
    }
    while (rows_.size() > cap_)
      rows_.erase(
          std::min_element(rows_.begin(), rows_.end(),
                           [this](const auto& a, const auto& b) { return RankOf(a) < RankOf(b); }));
  }
  std::set<uint64_t> keys() const {
    std::set<uint64_t> keys;
    for (const auto& [key, notes] : rows_) keys.insert(key);
    return keys;
  }

 private:
  struct Notes {
    int64_t created, updated, count;
  };
  std::tuple<int64_t, int64_t, uint64_t> RankOf(const std::pair<const uint64_t, Notes>& row) const {
    const auto& [key, notes] = row;
    switch (eviction_) {
      case Eviction::kOldest:
        return {notes.created, 0, SplitMix64(key)};
      case Eviction::kLeastRecent:
        return {notes.updated, 0, SplitMix64(key)};
      case Eviction::kLeastFrequent:
        return {notes.count, notes.updated, SplitMix64(key)};
    }
    return {};
  }
  const Eviction eviction_;
  const size_t cap_;
  int64_t step_ = 0;
  std::map<uint64_t, Notes> rows_;
};

// Zipf-like keys, calm times in which nothing new comes, and floods of new keys.
TEST(EvictionOrder, ExactlyTheRowsGoThatAreToGo) {
  for (const Eviction eviction :
       {Eviction::kOldest, Eviction::kLeastRecent, Eviction::kLeastFrequent})
    for (const size_t cap : {1, 7, 100, 900}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(eviction) << " of " << cap);
      const auto table = EmbeddingTable::Make(Capped(eviction, static_cast<int64_t>(cap)));
      Reference reference(eviction, cap);
      std::mt19937_64 random(cap);
      for (int step = 0; step < 250; ++step) {
        std::set<uint64_t> keys;
        for (int i = 0; i < 40; ++i) {
          const uint64_t draw = random() % 3000;
          const bool calm = step / 30 % 3 == 1, flood = step / 30 % 3 == 2;
          keys.insert(calm ? draw % 200 : flood ? 10000 + random() : draw * draw / 3000);
        }
        const std::vector<uint64_t> pushed(keys.begin(), keys.end());
        ASSERT_TRUE(table->Push(pushed, std::vector<float>(2 * pushed.size(), 1.f), 1).ok());
        reference.Push(pushed);
        std::set<uint64_t> left;
        for (const EmbeddingTable::Place& place : table->Places()) left.insert(place.key);
        ASSERT_EQ(left, reference.keys()) << "after update " << step;
      }
    }
}

// A table that is full, in which all rows are updated now and then, and new ones come.
TEST(EvictionOrder, NoUpdateLooksThroughTheTable) {
  constexpr size_t kRows = 100000, kNew = 10, kTouched = 20;
  for (const Eviction eviction :
       {Eviction::kOldest, Eviction::kLeastRecent, Eviction::kLeastFrequent}) {
    SCOPED_TRACE(static_cast<int>(eviction));
    const RowShape shape(Capped(eviction, kRows));
    RowStorage rows(shape.floats(), kRows);
    EvictionOrder order(shape, rows);
    std::mt19937_64 random(1);
    uint64_t next_key = 0;
    int64_t most = 0, all = 0;
    const auto note = [&](float* row, int64_t step, bool made) {
      float* first = row + shape.first_note();
      const bool frequent = eviction == Eviction::kLeastFrequent;
      if (frequent) {
        PutNote(first, made ? 1 : NoteIn(first) + 1);
        PutNote(first + 2, step);
      } else if (made || eviction == Eviction::kLeastRecent) {
        PutNote(first, step);
      }
    };
    for (int64_t step = 1; step <= 30000; ++step) {
      const int64_t before = order.visited();
      for (size_t i = 0; i < kNew; ++i) {
        const uint64_t key = next_key++;
        float* row = rows.Put(rows.At(key, SplitMix64(key)), key);
        note(row, step, true);
        order.Add(key, row);
      }
      for (size_t i = 0; i < kTouched; ++i) {
        const uint64_t key = next_key - 1 - random() % std::min<uint64_t>(next_key, kRows);
        const RowStorage::Entry& entry = rows.At(key, SplitMix64(key));
        if (entry.row != nullptr) note(entry.row, step, false);
      }
      if (rows.size() <= kRows) order.LookAhead(kNew, kRows - rows.size());
      while (rows.size() > kRows) {
        const RowStorage::Entry goes = order.Next();
        const RowStorage::Entry moved = rows.Erase(goes.key);
        if (moved.row != nullptr) order.Add(moved.key, moved.row);
      }
      most = std::max(most, order.visited() - before);
      all += order.visited() - before;
    }
    EXPECT_LT(most, static_cast<int64_t>(kRows / 10)) << "of " << rows.entries().size();
    EXPECT_LT(all / (30000 * static_cast<int64_t>(kNew)), 64) << "for each new row";
  }
}

}  // namespace
}  // namespace muster
