// What is counted of an embedding table, or of a part of it.
#pragma once

#include <cstdint>

namespace muster {

struct TableStatistics {
  int64_t rows = 0;
  // Of the rows, with all that belongs to them, and of the counts of keys that are not admitted
  // yet; without the index of keys.
  int64_t bytes = 0;
  int64_t lookups = 0;    // keys that were pulled
  int64_t hits = 0;       // of these: keys that had a row
  int64_t evictions = 0;  // rows that went for the cap
  int64_t refused = 0;    // updates of keys that are not admitted yet

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
