// IDX, the format of the MNIST files: two zero bytes, a type, a number of dimensions, the
// dimensions as big-endian 32-bit numbers, the data in big-endian C order
// (http://yann.lecun.com/exdb/mnist/). Often gzipped.
#include <endian.h>
#include <fmt/format.h>

#include <cstring>

#include "common/data/array_file.h"
#include "muster/data.h"

namespace muster::data {
namespace {

std::optional<at::ScalarType> TypeOf(uint8_t code) {
  switch (code) {
    case 0x08:
      return at::kByte;
    case 0x09:
      return at::kChar;
    case 0x0B:
      return at::kShort;
    case 0x0C:
      return at::kInt;
    case 0x0D:
      return at::kFloat;
    case 0x0E:
      return at::kDouble;
    default:
      return std::nullopt;
  }
}

template <typename Word, typename Swap>
void SwapWords(at::Tensor& tensor, Swap swap) {
  char* data = static_cast<char*>(tensor.mutable_data_ptr());
  const int64_t count = tensor.numel();
  for (int64_t i = 0; i < count; ++i, data += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data, sizeof(Word));
    word = swap(word);
    std::memcpy(data, &word, sizeof(Word));
  }
}

void FromBigEndian(at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 2:
      return SwapWords<uint16_t>(tensor, [](uint16_t w) { return be16toh(w); });
    case 4:
      return SwapWords<uint32_t>(tensor, [](uint32_t w) { return be32toh(w); });
    case 8:
      return SwapWords<uint64_t>(tensor, [](uint64_t w) { return be64toh(w); });
    default:
      return;
  }
}

}  // namespace

absl::StatusOr<at::Tensor> ReadIdx(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> source, OpenBytes(path, true));
  uint8_t magic[4];
  MUSTER_RETURN_IF_ERROR(ReadExactly(*source, magic, sizeof(magic), path, "its header"));
  const std::optional<at::ScalarType> type = TypeOf(magic[2]);
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
  MUSTER_RETURN_IF_ERROR(ReadExactly(*source, words.data(), 4 * dimensions, path, "its header"));
  std::vector<int64_t> shape;
  for (uint32_t word : words) shape.push_back(be32toh(word));
  MUSTER_ASSIGN_OR_RETURN(at::Tensor tensor,
                          ReadArray(std::move(source), path, 4 + 4 * dimensions, shape, *type));
  FromBigEndian(tensor);
  return tensor;
}

}  // namespace muster::data
