#include "common/summary/record.h"

#include <cstdint>

#include "common/base/crc32c.h"

namespace muster::summary {
namespace {

template <typename T>
void AppendLittleEndian(T value, std::string* out) {
  for (size_t i = 0; i < sizeof value; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

void AppendRecord(std::string_view data, std::string* file) {
  std::string length;
  AppendLittleEndian(static_cast<uint64_t>(data.size()), &length);
  *file += length;
  AppendLittleEndian(MaskedCrc32c(length), file);
  *file += data;
  AppendLittleEndian(MaskedCrc32c(data), file);
}

}  // namespace muster::summary
