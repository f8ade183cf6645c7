#include "common/data/array_file.h"

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

absl::Status WrongSize(const std::string& path, const std::vector<int64_t>& shape, int64_t bytes,
                       int64_t found) {
  return DataError(
      fmt::format("'{}' is {}: its header says shape [{}], {} bytes of data, and there are {}.",
                  path, found < bytes ? "truncated" : "damaged", fmt::join(shape, ", "), bytes,
                  found > bytes ? "more" : fmt::format("{}", found)));
}

}  // namespace

std::optional<int64_t> ArrayBytes(const std::vector<int64_t>& shape, int64_t item_size) {
  constexpr int64_t kLimit = int64_t{1} << 60;
  int64_t count = item_size;
  bool empty = false;
  for (int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    empty |= dimension == 0;
    if (__builtin_mul_overflow(count, std::max<int64_t>(dimension, 1), &count) || count > kLimit) {
      return std::nullopt;
    }
  }
  return empty ? 0 : count;
}

absl::StatusOr<at::Tensor> ReadArray(std::unique_ptr<ByteSource> source, const std::string& path,
                                     int64_t header_bytes, const std::vector<int64_t>& shape,
                                     at::ScalarType type) {
  const std::optional<int64_t> size =
      ArrayBytes(shape, static_cast<int64_t>(c10::elementSize(type)));
  if (!size) {
    return DataError(
        fmt::format("'{}' is damaged: its header says shape [{}], which no file holds.", path,
                    fmt::join(shape, ", ")));
  }
  const int64_t bytes = *size;
  if (!source->MayHold(header_bytes + bytes)) {
    MUSTER_ASSIGN_OR_RETURN(int64_t found, CountRest(*source, bytes + 1));
    if (found != bytes) return WrongSize(path, shape, bytes, found);
    MUSTER_ASSIGN_OR_RETURN(source, OpenBytes(path, /*gzip_allowed=*/true));
    std::vector<char> header(header_bytes);
    MUSTER_RETURN_IF_ERROR(ReadExactly(*source, header.data(), header_bytes, path, "its header"));
  }
  MUSTER_ASSIGN_OR_RETURN(at::Tensor result, Allocate(path, shape, type));
  MUSTER_ASSIGN_OR_RETURN(int64_t got, source->Read(result.mutable_data_ptr(), bytes));
  if (got != bytes) return WrongSize(path, shape, bytes, got);
  // Meets the end, and with it gzip's checksum.
  char extra;
  MUSTER_ASSIGN_OR_RETURN(int64_t more, source->Read(&extra, 1));
  if (more > 0) return WrongSize(path, shape, bytes, bytes + 1);
  return result;
}

}  // namespace muster::data
