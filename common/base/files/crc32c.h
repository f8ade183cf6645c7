// The CRC-32C checksum (Castagnoli; reflected polynomial 0x82F63B78), as in RFC 3720 (iSCSI)
// appendix B.4. Uses the instruction of SSE 4.2 if the processor has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace muster {

// Returns the checksum of some earlier bytes followed by `bytes`. `crc` is the checksum of the
// earlier bytes.
uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes);
inline uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> bytes) {
  return ExtendCrc32c(crc, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}
inline uint32_t Crc32c(std::string_view bytes) { return ExtendCrc32c(0, bytes); }
inline uint32_t Crc32c(std::span<const std::byte> bytes) { return ExtendCrc32c(0, bytes); }

// ExtendCrc32c without the SSE 4.2 instruction, for tests.
uint32_t ExtendCrc32cPortable(uint32_t crc, std::string_view bytes);

// Returns the masked checksum that TFRecord files store: the checksum is rotated, and a constant is
// added. TFRecord masks checksums because a CRC is weak for data that itself contains CRCs.
inline uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace muster
