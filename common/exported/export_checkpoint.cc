#include "common/exported/export_checkpoint.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <map>

#include "common/exported/archive_writer.h"
#include "common/exported/program.h"

namespace muster::exported {
namespace {

at::ScalarType TypeOf(checkpoint::DType type) {
  using checkpoint::DType;
  switch (type) {
    case DType::kBool:
      return at::kBool;
    case DType::kUInt8:
      return at::kByte;
    case DType::kInt8:
      return at::kChar;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
  }
  return at::kFloat;
}

// Returns the weights as views of the snapshot's memory.
std::map<std::string, at::Tensor> WeightsOf(const checkpoint::Snapshot& snapshot) {
  std::map<std::string, at::Tensor> weights;
  for (const checkpoint::Tensor& tensor : snapshot.model.tensors) {
    weights[tensor.name] =
        at::from_blob(const_cast<char*>(tensor.data), tensor.shape, at::dtype(TypeOf(tensor.dtype)))
            .clone();
  }
  return weights;
}

}  // namespace

absl::Status ExportCheckpoint(const checkpoint::Snapshot& snapshot, Json program,
                              const std::string& output) {
  if (program.is_null() && snapshot.state.job.is_object()) {
    program = snapshot.state.job.value("program", Json());
  }
  if (!IsExported(program)) {
    return ConfigurationError(
        fmt::format("the checkpoint's program is {}, and only one with \"exported\", a file of "
                    "torch.export.save, can be written back as such: for its weights alone, write "
                    "to a file that ends in .safetensors",
                    Dump(program)));
  }
  MUSTER_ASSIGN_OR_RETURN(
      const Archive archive,
      ReadArchive(program.at("exported").get<std::string>(), program.value("model", "")));
  return WriteTrained(archive, WeightsOf(snapshot), output);
}

}  // namespace muster::exported
