// Statistics of an embedding table, or of one server's part of a table.
#pragma once

#include <cstdint>

namespace muster::push_pull {

struct TableStatistics {
  int64_t rows = 0;
  // The memory of the rows (with the optimizer's slots and the numbers for eviction) and of
  // KeyCounts. The hash table from keys to rows is not included.
  int64_t bytes = 0;
  int64_t lookups = 0;    // The number of keys that were looked up.
  int64_t hits = 0;       // The number of these keys that had a row.
  int64_t evictions = 0;  // The number of rows that were evicted because of RowLimits.
  // The number of updates that had no effect because of RowLimits::admit_after.
  int64_t refused = 0;

  TableStatistics& operator+=(const TableStatistics& other) {
    rows += other.rows;
    bytes += other.bytes;
    lookups += other.lookups;
    hits += other.hits;
    evictions += other.evictions;
    refused += other.refused;
    return *this;
  }
  friend bool operator==(const TableStatistics&, const TableStatistics&) = default;
};

}  // namespace muster::push_pull
