// Reads IDX headers. IDX is the format of the MNIST files (http://yann.lecun.com/exdb/mnist/),
// which are often gzipped. A file has two zero bytes, a type, the number of dimensions, the
// dimensions as big-endian 32-bit numbers, and the big-endian data in C order.
#include <endian.h>
#include <fmt/format.h>

#include "common/data/files/array_header.h"

namespace muster::data {
namespace {

std::optional<NumberType> TypeOf(uint8_t code) {
  switch (code) {
    case 0x08:
      return NumberType::kUInt8;
    case 0x09:
      return NumberType::kInt8;
    case 0x0B:
      return NumberType::kInt16;
    case 0x0C:
      return NumberType::kInt32;
    case 0x0D:
      return NumberType::kFloat32;
    case 0x0E:
      return NumberType::kFloat64;
    default:
      return std::nullopt;
  }
}

}  // namespace

absl::StatusOr<ArrayHeader> ReadIdxHeader(ByteSource& source, const std::string& path) {
  uint8_t magic[4];
  MUSTER_RETURN_IF_ERROR(ReadExactly(source, magic, sizeof(magic), path, "its header"));
  const std::optional<NumberType> type = TypeOf(magic[2]);
  if (magic[0] != 0 || magic[1] != 0 || !type) {
    return DataError(fmt::format(
        "'{}' is not an IDX file: it begins with {:02x} {:02x} {:02x} {:02x}, not with 00 00 and a "
        "known type.",
        path, magic[0], magic[1], magic[2], magic[3]));
  }
  const int dimensions = magic[3];
  if (dimensions == 0 || dimensions > kMaxDimensions) {
    return DataError(
        fmt::format("'{}' is damaged: its header says {} dimensions (1 to {} are read).", path,
                    dimensions, kMaxDimensions));
  }
  std::vector<uint32_t> words(dimensions);
  MUSTER_RETURN_IF_ERROR(ReadExactly(source, words.data(), 4 * dimensions, path, "its header"));
  ArrayHeader header{.type = *type, .big_endian = true, .header_bytes = 4 + 4 * dimensions};
  for (const uint32_t word : words) header.shape.push_back(be32toh(word));
  return header;
}

}  // namespace muster::data
