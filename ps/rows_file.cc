#include "ps/rows_file.h"

#include <algorithm>

namespace muster::ps {
namespace {

constexpr int64_t kPieceElements = 256 << 10;

int64_t RowsOf(const RowsFile::Table& table) {
  int64_t rows = 0;
  for (const ShardStore::FrozenRows& chunk : table.chunks) rows += chunk.rows->size();
  return rows;
}

template <typename T>
void Put(const std::vector<T>& values, int64_t count, std::string* piece) {
  piece->assign(reinterpret_cast<const char*>(values.data()),
                static_cast<size_t>(count) * sizeof(T));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const RowsFile>> RowsFile::Make(std::vector<Table> tables) {
  const auto file = std::make_shared<RowsFile>();
  file->tables_ = std::move(tables);
  for (size_t t = 0; t < file->tables_.size(); ++t) {
    const Table& table = file->tables_[t];
    const int64_t rows = RowsOf(table);
    const auto add = [&](const std::string& name, checkpoint::DType dtype,
                         std::vector<int64_t> shape, int column) {
      file->tensors_.push_back({table.name + "." + name, dtype, std::move(shape)});
      file->sources_.push_back({t, column});
    };
    add("keys", checkpoint::DType::kInt64, {rows}, -1);
    for (size_t c = 0; c < table.columns.size(); ++c) {
      const push_pull::RowColumn& column = table.columns[c];
      if (column.integer) {
        add(column.name, checkpoint::DType::kInt64, {rows}, static_cast<int>(c));
      } else {
        add(column.name, checkpoint::DType::kFloat32, {rows, column.elements}, static_cast<int>(c));
      }
    }
    add("step", checkpoint::DType::kInt64, {}, static_cast<int>(table.columns.size()));
  }
  MUSTER_ASSIGN_OR_RETURN(file->plan_, checkpoint::PlanSafetensors(file->tensors_));
  return file;
}

bool RowsFile::Reader::Next(std::string* piece) {
  if (!std::exchange(begun_, true)) {
    *piece = file_->plan_.head;
    return true;
  }
  for (; tensor_ < file_->plan_.order.size(); ++tensor_, chunk_ = 0, row_ = 0)
    if (NextOfTensor(piece)) return true;
  return false;
}

bool RowsFile::Reader::NextOfTensor(std::string* piece) {
  const Source& source = file_->sources_[file_->plan_.order[tensor_]];
  const Table& table = file_->tables_[source.table];
  if (source.column == static_cast<int>(table.columns.size())) {
    if (std::exchange(chunk_, 1) == 1) return false;
    int64_t step = 0;
    for (const ShardStore::FrozenRows& chunk : table.chunks) step = std::max(step, chunk.updates);
    piece->assign(reinterpret_cast<const char*>(&step), sizeof step);
    return true;
  }
  while (chunk_ < table.chunks.size() && row_ >= table.chunks[chunk_].rows->size()) {
    ++chunk_;
    row_ = 0;
  }
  if (chunk_ == table.chunks.size()) return false;
  const push_pull::EmbeddingTable::Frozen& rows = *table.chunks[chunk_].rows;
  const int64_t elements = source.column < 0 ? 2 : table.columns[source.column].elements;
  const int64_t first = row_;
  const int64_t count =
      std::min(std::max<int64_t>(1, kPieceElements / elements), rows.size() - first);
  row_ += count;
  if (source.column < 0) {
    keys_.resize(static_cast<size_t>(count));
    rows.ReadKeys(first, keys_);
    Put(keys_, count, piece);
    return true;
  }
  int64_t begin = 0;
  for (int c = 0; c < source.column; ++c) begin += table.columns[c].elements;
  values_.resize(static_cast<size_t>(count * elements));
  rows.Read(first, count, begin, elements, values_.data());
  Put(values_, count * elements, piece);
  return true;
}

}  // namespace muster::ps
