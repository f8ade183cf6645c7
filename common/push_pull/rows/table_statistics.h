// Statistics of an embedding table, or of a part of it.
#pragma once

#include <cstdint>

namespace muster {

struct TableStatistics {
  int64_t rows = 0;
  // The size of rows with slots and notes, and of the counts of keys that are not admitted yet. The
  // index of keys is not included.
  int64_t bytes = 0;
  int64_t lookups = 0;    // Keys that were pulled.
  int64_t hits = 0;       // Pulled keys that had a row.
  int64_t evictions = 0;  // Rows evicted because of the limits.
  int64_t refused = 0;    // Updates of keys that are not admitted yet.

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

}  // namespace muster
