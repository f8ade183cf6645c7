#include "deploy/tool/export_table.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/json/ordered_json.h"
#include "common/checkpoint/export_file.h"
#include "deploy/tool/write_npy.h"

namespace muster {
namespace {

using checkpoint::DType;
using checkpoint::RowSource;
using checkpoint::Tensor;
using checkpoint::TensorInfo;

constexpr std::string_view kKeys = ".keys", kRows = ".rows", kNpy = ".npy";
constexpr int64_t kBlock = 4 << 20;  // Bytes per read.

at::ScalarType TypeOf(DType type) {
  return type == DType::kFloat16    ? at::kHalf
         : type == DType::kBFloat16 ? at::kBFloat16
                                    : at::kFloat;
}

// The part of a table in one of the checkpoint's sources.
struct TablePart {
  const RowSource* source;
  size_t keys, rows;
  const TensorInfo& shape() const { return source->tensors()[rows]; }
  int64_t count() const { return shape().shape[0]; }
};
std::optional<TablePart> Find(const RowSource& source, const std::string& name) {
  const int keys = source.Find(name + std::string(kKeys));
  const int rows = source.Find(name + std::string(kRows));
  if (keys < 0 || rows < 0) return std::nullopt;
  const TensorInfo &k = source.tensors()[keys], &r = source.tensors()[rows];
  const bool good = k.dtype == DType::kInt64 && k.shape.size() == 1 && r.shape.size() == 2 &&
                    r.shape[0] == k.shape[0] &&
                    (r.dtype == DType::kFloat32 || TypeOf(r.dtype) != at::kFloat);
  if (!good) return std::nullopt;
  return TablePart{&source, static_cast<size_t>(keys), static_cast<size_t>(rows)};
}

absl::Status Unknown(const checkpoint::RowSources& sources, const std::string& name) {
  std::set<std::string> names;
  for (const auto& source : sources)
    for (const TensorInfo& tensor : source->tensors()) {
      const std::string table = tensor.name.substr(0, tensor.name.rfind('.'));
      if (tensor.name.ends_with(kKeys) && Find(*source, table)) names.insert(table);
    }
  if (names.empty())
    return ConfigurationError(
        fmt::format("--table is \"{}\", and the checkpoint has no embedding tables", name));
  return ConfigurationError(
      fmt::format("--table {}", UnknownName(name, {names.begin(), names.end()})));
}

absl::StatusOr<std::vector<TablePart>> FindParts(const checkpoint::RowSources& sources,
                                                 const std::string& name) {
  std::vector<TablePart> parts;
  for (const auto& source : sources)
    if (const std::optional<TablePart> part = Find(*source, name)) parts.push_back(*part);
  if (parts.empty()) return Unknown(sources, name);
  const TensorInfo& first = parts[0].shape();
  for (const TablePart& part : parts)
    if (part.shape().dtype != first.dtype || part.shape().shape[1] != first.shape[1])
      return DataError(
          fmt::format("\"{}{}\" has rows of another kind in another file", name, kRows));
  return parts;
}

// A whole table, sorted by key. The rows exist only once in memory, because they may take most of
// it.
struct Table {
  at::Tensor keys, rows;
};
absl::StatusOr<Table> ReadSorted(const std::vector<TablePart>& parts) {
  std::vector<std::pair<int64_t, int64_t>> sorted;  // Each key with its position among all parts.
  std::vector<int64_t> keys;
  for (const TablePart& part : parts) {
    keys.resize(static_cast<size_t>(part.count()));
    MUSTER_RETURN_IF_ERROR(
        part.source->Read(part.keys, 0, part.count(), reinterpret_cast<char*>(keys.data())));
    for (const int64_t key : keys) sorted.emplace_back(key, static_cast<int64_t>(sorted.size()));
  }
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<int64_t>(sorted.size());
  const TensorInfo& shape = parts[0].shape();
  Table table{at::empty({count}, at::kLong),
              at::empty({count, shape.shape[1]}, TypeOf(shape.dtype))};
  std::vector<int64_t> to(sorted.size());  // Indexed by position.
  for (int64_t i = 0; i < count; ++i) {
    table.keys.mutable_data_ptr<int64_t>()[i] = sorted[i].first;
    to[sorted[i].second] = i;
  }
  const int64_t bytes = shape.shape[1] * table.rows.element_size();
  const int64_t most = std::max<int64_t>(1, kBlock / std::max<int64_t>(1, bytes));
  auto* const all = static_cast<char*>(table.rows.mutable_data_ptr());
  std::string block;
  int64_t place = 0;
  for (const TablePart& part : parts)
    for (int64_t first = 0; first < part.count(); first += most) {
      const int64_t some = std::min(most, part.count() - first);
      block.resize(some * bytes);
      MUSTER_RETURN_IF_ERROR(part.source->Read(part.rows, first, some, block.data()));
      for (int64_t i = 0; i < some; ++i)
        std::copy_n(block.data() + i * bytes, bytes, all + to[place++] * bytes);
    }
  return table;
}

Tensor OfFile(const char* name, DType type, const at::Tensor& tensor) {
  Tensor file;
  file.name = name;
  file.dtype = type;
  file.shape = tensor.sizes().vec();
  file.data = static_cast<const char*>(tensor.const_data_ptr());
  return file;
}

}  // namespace

absl::Status ExportTable(const checkpoint::Snapshot& snapshot, const std::string& name,
                         const std::string& output) {
  checkpoint::RowSources sources = snapshot.tables;
  sources.push_back(checkpoint::RowsInMemory(snapshot.model, {}));  // From synchronous training.
  MUSTER_ASSIGN_OR_RETURN(const std::vector<TablePart> parts, FindParts(sources, name));
  MUSTER_ASSIGN_OR_RETURN(const Table table, ReadSorted(parts));
  if (output.ends_with(kNpy)) {
    const std::string stem = output.substr(0, output.size() - kNpy.size());
    MUSTER_RETURN_IF_ERROR(WriteNpy(fmt::format("{}.keys{}", stem, kNpy), table.keys));
    return WriteNpy(output, table.rows);
  }
  checkpoint::TensorSet set;
  set.tensors = {OfFile("keys", DType::kInt64, table.keys),
                 OfFile("rows", parts[0].shape().dtype, table.rows)};
  const absl::Status written = checkpoint::WriteTensors(
      checkpoint::PosixFileSystem(), set,
      {{"table", name}, {"step", std::to_string(snapshot.state.step)}}, output);
  if (written.ok()) return written;
  return ConfigurationError(fmt::format("cannot write {}: {}", output, Message(written)));
}

}  // namespace muster
