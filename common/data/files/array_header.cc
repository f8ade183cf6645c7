#include "common/data/files/array_header.h"

#include <endian.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace muster::data {
namespace {

absl::Status WrongSize(const std::string& path, const std::vector<int64_t>& shape, int64_t bytes,
                       int64_t found) {
  return DataError(
      fmt::format("'{}' is {}: its header says shape [{}], {} bytes of data, and there are {}.",
                  path, found < bytes ? "truncated" : "damaged", fmt::join(shape, ", "), bytes,
                  found > bytes ? "more" : fmt::format("{}", found)));
}

template <typename Word, typename Swap>
void SwapWords(char* data, int64_t bytes, Swap swap) {
  for (const char* end = data + bytes; data < end; data += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data, sizeof(Word));
    word = swap(word);
    std::memcpy(data, &word, sizeof(Word));
  }
}

void FromBigEndian(char* data, int64_t bytes, int64_t item_size) {
  switch (item_size) {
    case 2:
      return SwapWords<uint16_t>(data, bytes, [](uint16_t w) { return be16toh(w); });
    case 4:
      return SwapWords<uint32_t>(data, bytes, [](uint32_t w) { return be32toh(w); });
    case 8:
      return SwapWords<uint64_t>(data, bytes, [](uint64_t w) { return be64toh(w); });
    default:
      return;
  }
}

absl::Status CheckBools(const char* data, int64_t bytes, const std::string& path) {
  if (std::all_of(data, data + bytes, [](char byte) { return byte == 0 || byte == 1; }))
    return absl::OkStatus();
  return DataError(fmt::format("'{}' is damaged: a bool in it is neither 0 nor 1.", path));
}

}  // namespace

int64_t BytesOf(NumberType type) {
  switch (type) {
    case NumberType::kInt8:
    case NumberType::kUInt8:
    case NumberType::kBool:
      return 1;
    case NumberType::kFloat16:
    case NumberType::kInt16:
      return 2;
    case NumberType::kFloat32:
    case NumberType::kInt32:
      return 4;
    case NumberType::kFloat64:
    case NumberType::kInt64:
      break;
  }
  return 8;
}

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

bool Mappable(const ByteSource& source, const ArrayHeader& header) {
  const int64_t bytes = ArrayBytes(header.shape, BytesOf(header.type)).value_or(0);
  return !header.fortran_order && !header.big_endian && header.type != NumberType::kBool &&
         bytes > 0 && source.MayHold(header.header_bytes + bytes);
}

absl::Status ReadNumbers(std::unique_ptr<ByteSource> source, const std::string& path,
                         const ArrayHeader& header, const AllocateNumbers& allocate) {
  const std::optional<int64_t> size = ArrayBytes(header.shape, BytesOf(header.type));
  if (!size) {
    return DataError(
        fmt::format("'{}' is damaged: its header says shape [{}], which no file holds.", path,
                    fmt::join(header.shape, ", ")));
  }
  const int64_t bytes = *size;
  if (!source->MayHold(header.header_bytes + bytes)) {
    MUSTER_ASSIGN_OR_RETURN(int64_t found, CountRest(*source, bytes + 1));
    if (found != bytes) return WrongSize(path, header.shape, bytes, found);
    MUSTER_ASSIGN_OR_RETURN(source, OpenBytes(path, /*gzip_allowed=*/true));
    std::vector<char> before(header.header_bytes);
    MUSTER_RETURN_IF_ERROR(
        ReadExactly(*source, before.data(), header.header_bytes, path, "its header"));
  }
  MUSTER_ASSIGN_OR_RETURN(void* const to, allocate(bytes));
  MUSTER_ASSIGN_OR_RETURN(int64_t got, source->Read(to, bytes));
  if (got != bytes) return WrongSize(path, header.shape, bytes, got);
  // Reads to the end, because only then the source verifies gzip's checksum.
  char extra;
  MUSTER_ASSIGN_OR_RETURN(int64_t more, source->Read(&extra, 1));
  if (more > 0) return WrongSize(path, header.shape, bytes, bytes + 1);
  auto* const data = static_cast<char*>(to);
  if (header.big_endian) FromBigEndian(data, bytes, BytesOf(header.type));
  return header.type == NumberType::kBool ? CheckBools(data, bytes, path) : absl::OkStatus();
}

}  // namespace muster::data
