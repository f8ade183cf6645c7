// CRC-32C (Castagnoli; reflected polynomial 0x82F63B78), as RFC 3720 (iSCSI) appendix B.4 gives it.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

uint32_t Crc32c(std::string_view bytes);

// The form in which TFRecord files store it: a checksum of data that holds checksums is a weak one,
// so it is rotated and shifted.
inline uint32_t MaskedCrc32c(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace muster
