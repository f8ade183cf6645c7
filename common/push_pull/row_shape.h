// What a row of an embedding table looks like in memory: the parameter, in its type; slots; notes.
// The last two are as Export has them. Internal to this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "common/push_pull/embedding_table.h"

namespace muster {

// What evictions go by, in a row: an int64 each.
enum class RowNote { kCreatedAt, kUpdatedAt, kUpdateCount };

struct RowShape {
  explicit RowShape(const EmbeddingTable::Options& options);
  int64_t floats() const { return elements - width + parameter; }
  // Where a column but the first lies in a row.
  int64_t PlaceOf(size_t column) const { return begin[column] - width + parameter; }
  int64_t first_note() const { return note_begin - width + parameter; }

  std::vector<RowColumn> columns;
  std::vector<int64_t> begin;  // of each column, as Export has them
  std::vector<RowNote> notes;
  int64_t width, parameter, elements = 0, note_begin = 0;
};

}  // namespace muster
