#include "deploy/tool/export_table.h"

#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <vector>

#include "common/base/ordered_json.h"
#include "common/checkpoint/export_file.h"
#include "deploy/tool/write_npy.h"

namespace muster {
namespace {

using checkpoint::DType;
using checkpoint::Tensor;

constexpr std::string_view kKeys = ".keys", kRows = ".rows", kNpy = ".npy";

at::ScalarType TypeOf(DType type) {
  return type == DType::kFloat16    ? at::kHalf
         : type == DType::kBFloat16 ? at::kBFloat16
                                    : at::kFloat;
}

// Both or none.
struct Table {
  const Tensor *keys = nullptr, *rows = nullptr;
  bool found() const { return keys != nullptr && rows != nullptr; }
};
Table Find(const checkpoint::TensorSet& model, const std::string& name) {
  Table table{model.Find(name + std::string(kKeys)), model.Find(name + std::string(kRows))};
  const bool good =
      table.found() && table.keys->dtype == DType::kInt64 && table.keys->shape.size() == 1 &&
      table.rows->shape.size() == 2 && table.rows->shape[0] == table.keys->shape[0] &&
      (table.rows->dtype == DType::kFloat32 || TypeOf(table.rows->dtype) != at::kFloat);
  return good ? table : Table{};
}

absl::Status Unknown(const checkpoint::TensorSet& model, const std::string& name) {
  std::vector<std::string> names;
  for (const Tensor& tensor : model.tensors) {
    const std::string table = tensor.name.substr(0, tensor.name.rfind('.'));
    if (tensor.name.ends_with(kKeys) && Find(model, table).found()) names.push_back(table);
  }
  return ConfigurationError(names.empty()
                                ? fmt::format("--table is \"{}\", and the checkpoint has no "
                                              "embedding tables",
                                              name)
                                : fmt::format("--table {}", UnknownName(name, names)));
}

at::Tensor AsTensor(const Tensor& tensor, at::ScalarType type) {
  return at::from_blob(const_cast<char*>(tensor.data), tensor.shape, at::TensorOptions(type));
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
  checkpoint::TensorSet model = snapshot.model, optimizer;
  MUSTER_RETURN_IF_ERROR(checkpoint::JoinRows(snapshot.tables, &model, &optimizer));
  const Table table = Find(model, name);
  if (!table.found()) return Unknown(model, name);
  at::Tensor keys = AsTensor(*table.keys, at::kLong);
  const at::Tensor order = keys.argsort();
  keys = keys.index_select(0, order).contiguous();
  const at::Tensor rows =
      AsTensor(*table.rows, TypeOf(table.rows->dtype)).index_select(0, order).contiguous();
  if (output.ends_with(kNpy)) {
    const std::string stem = output.substr(0, output.size() - kNpy.size());
    MUSTER_RETURN_IF_ERROR(WriteNpy(fmt::format("{}.keys{}", stem, kNpy), keys));
    return WriteNpy(output, rows);
  }
  checkpoint::TensorSet set;
  set.tensors = {OfFile("keys", DType::kInt64, keys), OfFile("rows", table.rows->dtype, rows)};
  const absl::Status written = checkpoint::WriteTensors(
      checkpoint::PosixFileSystem(), set,
      {{"table", name}, {"step", std::to_string(snapshot.state.step)}}, output);
  if (written.ok()) return written;
  return ConfigurationError(fmt::format("cannot write {}: {}", output, Message(written)));
}

}  // namespace muster
