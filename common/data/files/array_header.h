// The headers of npy and IDX files, and their numbers as bytes: the part of their readers that
// needs no LibTorch. Errors are DataErrors that name the file. Internal to this folder.
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
  int64_t header_bytes = 0;  // The numbers begin after them.
};
// Each function reads up to the end of the header.
absl::StatusOr<ArrayHeader> ReadNpyHeader(ByteSource& source, const std::string& path);
absl::StatusOr<ArrayHeader> ReadIdxHeader(ByteSource& source, const std::string& path);

// Returns the size of an array in bytes. Returns nullopt where it would not fit in a tensor, or
// where a stride would not. A dimension of 0 does not make strides smaller.
std::optional<int64_t> ArrayBytes(const std::vector<int64_t>& shape, int64_t item_size);

// True where the bytes of the file are those of a tensor (C order, no bool), and all of them are
// present.
bool Mappable(const ByteSource& source, const ArrayHeader& header);

// Reads the rest of the file in one pass, as native numbers in the file's order. `allocate` is
// called only after the sizes were compared, so that a header alone cannot cause an allocation.
// Where the gzip trailer does not determine the size, the file is opened again to count the bytes.
using AllocateNumbers = std::function<absl::StatusOr<void*>(int64_t bytes)>;
absl::Status ReadNumbers(std::unique_ptr<ByteSource> source, const std::string& path,
                         const ArrayHeader& header, const AllocateNumbers& allocate);

}  // namespace muster::data
