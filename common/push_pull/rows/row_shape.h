// The memory layout of a row of an embedding table. The parameter is first, in the table's RowType.
// Slots and notes follow, as in the format of EmbeddingTable::Export. Internal to this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "common/push_pull/rows/embedding_table.h"

namespace muster::push_pull {

// A note is a value in a row that eviction uses. Each note is an int64.
enum class RowNote { kCreatedAt, kUpdatedAt, kUpdateCount };

struct RowShape {
  explicit RowShape(const EmbeddingTable::Options& options);
  // The size of a row in memory.
  int64_t floats() const { return elements - width + parameter; }
  // Returns a column's position in a row. REQUIRES: it is not the first column.
  int64_t PlaceOf(size_t column) const { return begin[column] - width + parameter; }
  int64_t first_note() const { return note_begin - width + parameter; }

  std::vector<RowColumn> columns;
  std::vector<int64_t> begin;  // The start of each column in the format of Export.
  std::vector<RowNote> notes;
  // All sizes are in float32 elements. `parameter` is the size of the parameter in memory. The
  // other values refer to the format of Export: the size of the parameter (`width`), the size of a
  // row (`elements`) and the position of the first note (`note_begin`).
  int64_t width, parameter, elements = 0, note_begin = 0;
};

}  // namespace muster::push_pull
