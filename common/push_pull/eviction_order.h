// Which row of a shard goes next: the lowest by what evictions go by (RowShape's notes). Exactly
// that one, for the work of a few rows each time, because a row's rank only rises: some rows that
// are lowest are known by the ranks that they had, and while these are used up the index is looked
// through, a piece at a time, for those that come after them. Which row goes is a function of the
// rows alone, however far that has come. Under its shard's lock. Internal to this folder.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/push_pull/row_shape.h"
#include "common/push_pull/row_storage.h"

namespace muster {

class EvictionOrder {
 public:
  // Both outlive this object.
  EvictionOrder(const RowShape& shape, const RowStorage& rows) : shape_(shape), rows_(rows) {}

  // To be called of each row that is made, or restored, once its notes are there; and of what Erase
  // tells.
  void Add(uint64_t key, const float* row);
  // So many rows were added, `room` more may be before one has to go.
  void LookAhead(size_t added, size_t room);
  // The row that goes. REQUIRES: there is one; it is erased before the next call.
  RowStorage::Entry Next();

  int64_t visited() const { return visited_; }  // entries of the index so far

 private:
  struct Rank {
    int64_t first, second;
    uint64_t hash, key;  // by a hash where notes are equal: small keys are often the popular ones
    auto operator<=>(const Rank&) const = default;
  };
  // A look through the index, from its end to its beginning: whoever moves there moves down.
  struct Scan {
    Rank highest;  // that is taken, above `highest_`
    size_t entries, left;
    std::vector<Rank> found;
  };
  Rank RankOf(uint64_t key, const float* row) const;
  void Push(const Rank& rank);
  bool Scanning() const { return scan_ && scan_->entries == rows_.entries().size(); }
  void Begin();
  void Advance(size_t entries);

  const RowShape& shape_;
  const RowStorage& rows_;
  // Every row of a rank up to `highest_`, with that rank or one that it had: a heap, the lowest
  // first. Some twice.
  std::vector<Rank> lowest_;
  std::optional<Rank> highest_;
  std::optional<Scan> scan_;
  int64_t visited_ = 0;
};

}  // namespace muster
