// CRC-32C (Castagnoli; reflected polynomial 0x82F63B78), as in RFC 3720 (iSCSI) appendix B.4. Uses
// the processor's instruction if available (SSE 4.2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace muster {

// The checksum of `a` followed by `b` is ExtendCrc32c(Crc32c(a), b).
uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes);
inline uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> bytes) {
  return ExtendCrc32c(crc, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}
inline uint32_t Crc32c(std::string_view bytes) { return ExtendCrc32c(0, bytes); }
inline uint32_t Crc32c(std::span<const std::byte> bytes) { return ExtendCrc32c(0, bytes); }

// The same without the processor's instruction, for tests.
uint32_t ExtendCrc32cPortable(uint32_t crc, std::string_view bytes);

// The masked form that TFRecord files store. A checksum over data that contains checksums is weak,
// so the value is rotated and shifted.
inline uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace muster
