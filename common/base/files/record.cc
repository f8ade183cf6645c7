#include "common/base/files/record.h"

#include <cstdint>

#include "common/base/files/crc32c.h"

namespace muster {
namespace {

template <typename T>
void AppendLittleEndian(T value, std::string* out) {
  for (size_t i = 0; i < sizeof value; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

template <typename T>
T LittleEndian(const char* bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i)
    value |= static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

bool Read(std::istream* file, size_t size, std::string* bytes) {
  bytes->resize(size);
  return static_cast<bool>(file->read(bytes->data(), static_cast<std::streamsize>(size)));
}

constexpr uint64_t kLargest = 1 << 30;  // In bytes. Half of the limit of a protocol buffer.

}  // namespace

bool ReadRecord(std::istream* file, std::string* data) {
  std::string head, checksum;
  if (!Read(file, 12, &head)) return false;
  const uint64_t size = LittleEndian<uint64_t>(head.data());
  if (LittleEndian<uint32_t>(head.data() + 8) != MaskedCrc32c(head.substr(0, 8))) return false;
  if (size > kLargest || !Read(file, size, data) || !Read(file, 4, &checksum)) return false;
  return LittleEndian<uint32_t>(checksum.data()) == MaskedCrc32c(*data);
}

void AppendRecord(std::string_view data, std::string* file) {
  std::string length;
  AppendLittleEndian(static_cast<uint64_t>(data.size()), &length);
  *file += length;
  AppendLittleEndian(MaskedCrc32c(length), file);
  *file += data;
  AppendLittleEndian(MaskedCrc32c(data), file);
}

}  // namespace muster
