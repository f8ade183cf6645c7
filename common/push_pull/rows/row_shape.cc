#include "common/push_pull/rows/row_shape.h"

#include <iterator>

#include "common/optim/update_kernels.h"
#include "common/push_pull/rows/row_values.h"

namespace muster::push_pull {
namespace {

constexpr const char* kNoteNames[] = {"created_at", "updated_at", "update_count"};

std::vector<RowNote> NotesOf(const RowLimits& limits) {
  if (!limits.capped()) return {};
  switch (limits.eviction) {
    case Eviction::kOldest:
      return {RowNote::kCreatedAt};
    case Eviction::kLeastRecent:
      return {RowNote::kUpdatedAt};
    case Eviction::kLeastFrequent:
      return {RowNote::kUpdateCount, RowNote::kUpdatedAt};
  }
  return {};
}

}  // namespace

RowShape::RowShape(const EmbeddingTable::Options& options)
    : columns(EmbeddingTable::Columns(options)),
      notes(NotesOf(options.limits)),
      width(options.width),
      parameter(FloatsOf(options.type, options.width)) {
  for (const RowColumn& column : columns) {
    begin.push_back(elements);
    elements += column.elements;
  }
  note_begin = elements - 2 * static_cast<int64_t>(notes.size());
}

std::vector<RowColumn> EmbeddingTable::Columns(const Options& options) {
  std::vector<RowColumn> columns = {{"rows", options.width}};
  for (const std::string& slot : ShapedSlots(options.rule))
    columns.push_back({slot, SlotElements(options.rule, options.width)});
  for (const RowNote note : NotesOf(options.limits))
    columns.push_back({kNoteNames[static_cast<int>(note)], 2, true});
  return columns;
}

std::vector<std::string> EmbeddingTable::EvictionColumns() {
  return {std::begin(kNoteNames), std::end(kNoteNames)};
}

}  // namespace muster::push_pull
