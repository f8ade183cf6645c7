#include "ps/rows_file.h"

#include <algorithm>

namespace muster::ps {
namespace {

constexpr int64_t kPieceElements = 256 << 10;

int64_t RowsOf(const RowsFile::Table& table) {
  int64_t rows = 0;
  for (const DenseStore::FrozenRows& chunk : table.chunks) rows += chunk.rows->size();
  return rows;
}

template <typename T>
std::string_view BytesOf(const std::vector<T>& values, int64_t count) {
  return {reinterpret_cast<const char*>(values.data()), static_cast<size_t>(count) * sizeof(T)};
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
      const RowColumn& column = table.columns[c];
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

absl::Status RowsFile::Write(const std::function<absl::Status(std::string_view)>& append) const {
  MUSTER_RETURN_IF_ERROR(append(plan_.head));
  for (const size_t tensor : plan_.order)
    MUSTER_RETURN_IF_ERROR(WriteTensor(sources_[tensor], append));
  return absl::OkStatus();
}

absl::Status RowsFile::WriteTensor(
    const Source& source, const std::function<absl::Status(std::string_view)>& append) const {
  const Table& table = tables_[source.table];
  if (source.column == static_cast<int>(table.columns.size())) {
    int64_t step = 0;
    for (const DenseStore::FrozenRows& chunk : table.chunks) step = std::max(step, chunk.updates);
    return append({reinterpret_cast<const char*>(&step), sizeof step});
  }
  int64_t begin = 0;
  for (int c = 0; c < source.column; ++c) begin += table.columns[c].elements;
  const int64_t elements = source.column < 0 ? 2 : table.columns[source.column].elements;
  const int64_t most = std::max<int64_t>(1, kPieceElements / elements);
  std::vector<uint64_t> keys;
  std::vector<float> values;
  for (const DenseStore::FrozenRows& chunk : table.chunks) {
    for (int64_t first = 0; first < chunk.rows->size(); first += most) {
      const int64_t count = std::min(most, chunk.rows->size() - first);
      if (source.column < 0) {
        keys.resize(static_cast<size_t>(count));
        chunk.rows->ReadKeys(first, keys);
        MUSTER_RETURN_IF_ERROR(append(BytesOf(keys, count)));
      } else {
        values.resize(static_cast<size_t>(count * elements));
        chunk.rows->Read(first, count, begin, elements, values.data());
        MUSTER_RETURN_IF_ERROR(append(BytesOf(values, count * elements)));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace muster::ps
