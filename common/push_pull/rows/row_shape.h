// The layout of a row of an embedding table in memory. The parameter is first, in the table's
// RowType. The optimizer's slots in float32 and the notes follow, as in the format of
// EmbeddingTable::Export. A note is a number that eviction needs. Internal to this folder.
#pragma once

#include <cstdint>
#include <vector>

#include "common/push_pull/rows/embedding_table.h"

namespace muster::push_pull {

// The kinds of notes. Each note is an int64 in the bytes of two float32 elements.
enum class RowNote { kCreatedAt, kUpdatedAt, kUpdateCount };

struct RowShape {
  explicit RowShape(const EmbeddingTable::Options& options);
  // All sizes and positions are in float32 elements.
  //
  // Returns the size of a row in memory.
  int64_t floats() const { return elements - width + parameter; }
  // Returns the position of a column in memory. REQUIRES: the column is not the first one.
  int64_t PlaceOf(size_t column) const { return begin[column] - width + parameter; }
  // Returns the position of the first note in memory.
  int64_t first_note() const { return note_begin - width + parameter; }

  std::vector<RowColumn> columns;
  std::vector<int64_t> begin;  // The position of each column in the format of Export.
  std::vector<RowNote> notes;
  // `parameter` is the size of the parameter in memory. In the format of Export, `width` is the
  // size of the parameter, `elements` is the size of a row, and `note_begin` is the position of the
  // first note.
  int64_t width, parameter, elements = 0, note_begin = 0;
};

}  // namespace muster::push_pull
