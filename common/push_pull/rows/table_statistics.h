// Statistics of an embedding table, or of a part of it.
#pragma once

#include <cstdint>

namespace muster::push_pull {

struct TableStatistics {
  int64_t rows = 0;
  // The memory of rows, including slots and notes, and of the counts of keys that are not admitted
  // yet. Does not include the index of keys.
  int64_t bytes = 0;
  int64_t lookups = 0;    // Pulled keys.
  int64_t hits = 0;       // Pulled keys that had a row.
  int64_t evictions = 0;  // Rows evicted because of RowLimits.
  int64_t refused = 0;    // Updates without effect, because the key was not admitted yet.

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
