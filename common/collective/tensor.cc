#include "common/collective/tensor.h"

#include <fmt/format.h>

#include <string>

namespace muster::collective {
namespace {

DataType TypeOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DataType::kFloat32;
    case at::kDouble:
      return DataType::kFloat64;
    case at::kHalf:
      return DataType::kFloat16;
    case at::kBFloat16:
      return DataType::kBFloat16;
    case at::kLong:
      return DataType::kInt64;
    default:
      return DataType::kByte;
  }
}

std::string Text(at::IntArrayRef list) {
  std::string text;
  for (const int64_t i : list) text += (text.empty() ? "" : ", ") + std::to_string(i);
  return text;
}

}  // namespace

absl::StatusOr<Buffer> TensorBuffer(const at::Tensor& tensor) {
  if (!tensor.defined()) return ProgramError("A collective operation was given no tensor.");
  if (tensor.layout() != at::kStrided) {
    return ProgramError("A collective operation was given a sparse tensor; make it dense first.");
  }
  if (!tensor.is_contiguous()) {
    return ProgramError(
        fmt::format("A collective operation was given a tensor of shape [{}] and strides [{}], "
                    "which is not contiguous: call contiguous() on it first.",
                    Text(tensor.sizes()), Text(tensor.strides())));
  }
  const DataType type = TypeOf(tensor.scalar_type());
  return Buffer{tensor.data_ptr(),
                type == DataType::kByte ? static_cast<int64_t>(tensor.nbytes()) : tensor.numel(),
                type};
}

}  // namespace muster::collective
