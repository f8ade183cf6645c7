// What npy and IDX files say of the array in them, and its numbers as bytes: the half of their
// readers that needs no LibTorch. Errors are DataErrors that name the file. Internal to this
// folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/data/byte_source.h"

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
  int64_t header_bytes = 0;  // the numbers are behind them
};
// Each reads as far as the header goes.
absl::StatusOr<ArrayHeader> ReadNpyHeader(ByteSource& source, const std::string& path);
absl::StatusOr<ArrayHeader> ReadIdxHeader(ByteSource& source, const std::string& path);

// Size in bytes of an array; nothing where that (or a stride, which a dimension of 0 does not
// shrink) would not fit in a tensor.
std::optional<int64_t> ArrayBytes(const std::vector<int64_t>& shape, int64_t item_size);

// Whether the bytes of the file are those of a tensor (C order, no bool), and all of them are
// there.
bool Mappable(const ByteSource& source, const ArrayHeader& header);

// The rest of the file, in one pass, as numbers of this machine, in the file's order. `allocate`
// gives memory for so many bytes, after the sizes have been compared: memory is never taken on a
// header's word alone. Where the gzip trailer leaves the size open the file is opened once more to
// count.
using AllocateNumbers = std::function<absl::StatusOr<void*>(int64_t bytes)>;
absl::Status ReadNumbers(std::unique_ptr<ByteSource> source, const std::string& path,
                         const ArrayHeader& header, const AllocateNumbers& allocate);

}  // namespace muster::data
