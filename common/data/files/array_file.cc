#include "common/data/files/array_file.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace muster::data {
namespace {

absl::StatusOr<at::Tensor> Allocate(const std::string& path, const std::vector<int64_t>& shape,
                                    at::ScalarType type) {
  try {
    return at::empty(shape, at::TensorOptions(type));
  } catch (const std::exception&) {
    return DataError(fmt::format("'{}' holds an array of shape [{}], for which there is no memory.",
                                 path, fmt::join(shape, ", ")));
  }
}

}  // namespace

at::ScalarType ScalarTypeOf(NumberType type) {
  switch (type) {
    case NumberType::kFloat16:
      return at::kHalf;
    case NumberType::kFloat32:
      return at::kFloat;
    case NumberType::kFloat64:
      return at::kDouble;
    case NumberType::kInt8:
      return at::kChar;
    case NumberType::kInt16:
      return at::kShort;
    case NumberType::kInt32:
      return at::kInt;
    case NumberType::kInt64:
      return at::kLong;
    case NumberType::kUInt8:
      return at::kByte;
    case NumberType::kBool:
      break;
  }
  return at::kBool;
}

absl::StatusOr<at::Tensor> ReadArray(std::unique_ptr<ByteSource> source, const std::string& path,
                                     const ArrayHeader& header) {
  std::vector<int64_t> shape = header.shape;
  if (header.fortran_order) std::reverse(shape.begin(), shape.end());
  at::Tensor tensor;
  const auto allocate = [&](int64_t) -> absl::StatusOr<void*> {
    MUSTER_ASSIGN_OR_RETURN(tensor, Allocate(path, shape, ScalarTypeOf(header.type)));
    return tensor.mutable_data_ptr();
  };
  MUSTER_RETURN_IF_ERROR(ReadNumbers(std::move(source), path, header, allocate));
  if (!header.fortran_order) return tensor;
  std::vector<int64_t> reversed(shape.size());
  for (size_t i = 0; i < reversed.size(); ++i) reversed[i] = reversed.size() - 1 - i;
  return tensor.permute(reversed).contiguous();
}

}  // namespace muster::data
