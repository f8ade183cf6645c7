// The memory layout of a row of an embedding table: the parameter in its type, slots, and notes.
// Slots and notes have the format of Export. Internal to this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "common/push_pull/rows/embedding_table.h"

namespace muster {

// The values in a row that eviction uses, an int64 each.
enum class RowNote { kCreatedAt, kUpdatedAt, kUpdateCount };

struct RowShape {
  explicit RowShape(const EmbeddingTable::Options& options);
  int64_t floats() const { return elements - width + parameter; }
  // The position in a row of any column except the first.
  int64_t PlaceOf(size_t column) const { return begin[column] - width + parameter; }
  int64_t first_note() const { return note_begin - width + parameter; }

  std::vector<RowColumn> columns;
  std::vector<int64_t> begin;  // The start of each column, in the format of Export.
  std::vector<RowNote> notes;
  int64_t width, parameter, elements = 0, note_begin = 0;
};

}  // namespace muster
