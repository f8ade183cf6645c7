// Reads the headers of npy and IDX files, and the array data after them into host memory. Needs no
// LibTorch. Every error is a DataError that names the file. Internal to this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/data/files/byte_source.h"

namespace muster::data {

inline constexpr int kMaxDimensions = 32;

enum class NumberType {
  kFloat16,
  kFloat32,
  kFloat64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kBool
};
int64_t BytesOf(NumberType type);

struct ArrayHeader {
  NumberType type = NumberType::kFloat32;
  std::vector<int64_t> shape;
  bool fortran_order = false;
  bool big_endian = false;
  int64_t header_bytes = 0;  // Offset of the array data in the file.
};
// Each function reads up to the end of the header.
absl::StatusOr<ArrayHeader> ReadNpyHeader(ByteSource& source, const std::string& path);
absl::StatusOr<ArrayHeader> ReadIdxHeader(ByteSource& source, const std::string& path);

// Returns the size of the array in bytes. Returns nullopt if the shape is invalid, or if the size
// or a stride would exceed 2^60. A dimension of 0 counts as 1 in this check, as it does in strides.
std::optional<int64_t> ArrayBytes(const std::vector<int64_t>& shape, int64_t item_size);

// Returns true if the file can be mapped as a tensor without a conversion: it is not empty, and has
// C order, native byte order, a type other than bool, and enough bytes for its shape.
bool Mappable(const ByteSource& source, const ArrayHeader& header);

// Reads the array data and converts it to native byte order. The order of elements stays that of
// the file. Calls `allocate` only after it has compared the size in the header with the size of the
// file, so that a wrong header cannot cause a large allocation. If the size of a gzip file is not
// known from its trailer, opens the file again to count the bytes.
using AllocateNumbers = std::function<absl::StatusOr<void*>(int64_t bytes)>;
absl::Status ReadNumbers(std::unique_ptr<ByteSource> source, const std::string& path,
                         const ArrayHeader& header, const AllocateNumbers& allocate);

}  // namespace muster::data
