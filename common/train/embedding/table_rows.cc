#include "common/train/embedding/table_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/optim/update_kernels.h"

namespace muster {
namespace {

using checkpoint::DType;
using checkpoint::TensorInfo;
using push_pull::EmbeddingTable;

constexpr int64_t kBlockElements = 256 << 10;

std::string Describe(const TensorInfo& info) {
  std::vector<std::string> sizes;
  for (const int64_t size : info.shape) sizes.push_back(size < 0 ? "rows" : std::to_string(size));
  return fmt::format("{} [{}]", checkpoint::kDTypeNames[static_cast<int>(info.dtype)],
                     fmt::join(sizes, ", "));
}

// Returns the index of the tensor, or -1 if it does not exist. An expected first dimension of -1
// matches any size.
absl::StatusOr<int> FindFitting(const checkpoint::RowSource& source, const TensorInfo& expected) {
  const int index = source.Find(expected.name);
  if (index < 0) return -1;
  const TensorInfo& found = source.tensors()[index];
  std::vector<int64_t> shape = found.shape;
  if (!shape.empty() && !expected.shape.empty() && expected.shape[0] < 0) shape[0] = -1;
  if (found.dtype == expected.dtype && shape == expected.shape) return index;
  return ConfigurationError(fmt::format("\"{}\" is {} in it and {} in the program", expected.name,
                                        Describe(found), Describe(expected)));
}

absl::Status IsMissing(const std::string& name) {
  return ConfigurationError(fmt::format("\"{}\" is not in it", name));
}

}  // namespace

absl::StatusOr<TableRows> TableRows::Find(const checkpoint::RowSources& sources,
                                          const std::string& table,
                                          const EmbeddingTable::Options& options, bool slots) {
  TableRows all;
  all.columns_ = EmbeddingTable::Columns(options);
  all.names_ = {table + ".keys"};
  const std::vector<std::string> shaped = ShapedSlots(options.rule);
  for (const push_pull::RowColumn& column : all.columns_) {
    if (slots || all.names_.size() == 1) all.names_.push_back(table + "." + column.name);
    const bool slot = std::find(shaped.begin(), shaped.end(), column.name) != shaped.end();
    all.initial_row_.insert(
        all.initial_row_.end(), static_cast<size_t>(column.elements),
        slot ? static_cast<float>(InitialSlotValue(options.rule, column.name)) : 0);
  }
  if (slots) all.names_.push_back(table + ".step");
  // Also names the columns of all eviction policies, so that columns of another policy are ignored
  // without an error.
  if (slots)
    for (const std::string& column : EmbeddingTable::EvictionColumns())
      all.names_.push_back(table + "." + column);
  for (const auto& source : sources) MUSTER_RETURN_IF_ERROR(all.AddSource(source, table, slots));
  if (all.sources_.empty()) return IsMissing(all.names_[0]);
  return all;
}

absl::Status TableRows::AddSource(const std::shared_ptr<const checkpoint::RowSource>& source,
                                  const std::string& table, bool slots) {
  MUSTER_ASSIGN_OR_RETURN(const int keys, FindFitting(*source, {names_[0], DType::kInt64, {-1}}));
  if (keys < 0) return absl::OkStatus();
  SourceRows part{source, source->tensors()[keys].shape[0], static_cast<size_t>(keys), {}};
  for (const push_pull::RowColumn& column : columns_) {
    part.columns.push_back(-1);
    if (!slots && part.columns.size() > 1) continue;
    const TensorInfo expected =
        column.integer
            ? TensorInfo{table + "." + column.name, DType::kInt64, {part.rows}}
            : TensorInfo{table + "." + column.name, DType::kFloat32, {part.rows, column.elements}};
    MUSTER_ASSIGN_OR_RETURN(part.columns.back(), FindFitting(*source, expected));
    // Integer columns record the use of a row. Older checkpoints do not have them.
    if (part.columns.back() < 0 && !column.integer) return IsMissing(expected.name);
  }
  if (slots) {
    const std::string name = table + ".step";
    MUSTER_ASSIGN_OR_RETURN(const int step, FindFitting(*source, {name, DType::kInt64, {}}));
    if (step < 0) return IsMissing(name);
    int64_t updates = 0;
    MUSTER_RETURN_IF_ERROR(
        source->Read(static_cast<size_t>(step), 0, 1, reinterpret_cast<char*>(&updates)));
    updates_ = std::max(updates_, updates);
  }
  sources_.push_back(std::move(part));
  return absl::OkStatus();
}

absl::Status TableRows::ReadBlock(const SourceRows& part, int64_t first, std::span<uint64_t> keys,
                                  std::vector<float>* column, std::span<float> rows) const {
  const auto count = static_cast<int64_t>(keys.size());
  MUSTER_RETURN_IF_ERROR(
      part.source->Read(part.keys, first, count, reinterpret_cast<char*>(keys.data())));
  const size_t stride = initial_row_.size();
  size_t begin = 0;
  for (size_t c = 0; c < columns_.size(); begin += columns_[c++].elements) {
    const auto elements = static_cast<size_t>(columns_[c].elements);
    if (part.columns[c] < 0) {
      for (int64_t i = 0; i < count; ++i)
        std::copy_n(initial_row_.data() + begin, elements, rows.data() + i * stride + begin);
      continue;
    }
    column->resize(keys.size() * elements);
    MUSTER_RETURN_IF_ERROR(part.source->Read(static_cast<size_t>(part.columns[c]), first, count,
                                             reinterpret_cast<char*>(column->data())));
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(column->data() + i * elements, elements, rows.data() + i * stride + begin);
  }
  return absl::OkStatus();
}

absl::Status TableRows::ForEach(const Take& take) const {
  const auto stride = static_cast<int64_t>(initial_row_.size());
  const int64_t most = std::max<int64_t>(1, kBlockElements / stride);
  std::vector<uint64_t> keys;
  std::vector<float> column, rows;
  for (const SourceRows& part : sources_) {
    for (int64_t first = 0; first < part.rows; first += most) {
      const int64_t count = std::min(most, part.rows - first);
      keys.resize(static_cast<size_t>(count));
      rows.resize(static_cast<size_t>(count * stride));
      MUSTER_RETURN_IF_ERROR(ReadBlock(part, first, keys, &column, rows));
      MUSTER_RETURN_IF_ERROR(take(keys, rows));
    }
  }
  return absl::OkStatus();
}

}  // namespace muster
