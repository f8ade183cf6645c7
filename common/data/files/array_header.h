// Reads headers and array data of npy and IDX files. Needs no LibTorch. Every error is a DataError
// that names the file. Internal to this folder.
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
  int64_t header_bytes = 0;  // The offset of the array data in the file.
};
// These functions read the header, and leave `source` at the end of the header.
absl::StatusOr<ArrayHeader> ReadNpyHeader(ByteSource& source, const std::string& path);
absl::StatusOr<ArrayHeader> ReadIdxHeader(ByteSource& source, const std::string& path);

// Returns the size of the array in bytes. Returns nullopt if the shape is invalid, or if the size
// or a stride would exceed 2^60. In this check, as in the computation of strides, a dimension of 0
// counts as 1.
std::optional<int64_t> ArrayBytes(const std::vector<int64_t>& shape, int64_t item_size);

// Returns true if the file can be mapped as a tensor without conversion. This requires C order,
// native byte order, a type other than bool, at least one element, and a file of the right size.
bool Mappable(const ByteSource& source, const ArrayHeader& header);

// Reads the array data into the memory that `allocate` returns, and converts it to native byte
// order. The elements keep the file's order. Before the call of `allocate`, ReadNumbers compares
// the size in the header with the file's size, so a wrong header cannot cause a large allocation.
// For a gzip file, ByteSource::MayHold may wrongly return false. In this case, ReadNumbers reads
// the whole file to count the bytes, and then opens the file again.
using AllocateNumbers = std::function<absl::StatusOr<void*>(int64_t bytes)>;
absl::Status ReadNumbers(std::unique_ptr<ByteSource> source, const std::string& path,
                         const ArrayHeader& header, const AllocateNumbers& allocate);

}  // namespace muster::data
