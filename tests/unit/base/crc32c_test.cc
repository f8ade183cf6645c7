#include "common/base/files/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace muster {
namespace {

uint32_t BitByBit(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

std::string RandomBytes(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// RFC 3720, appendix B.4, and the check value of the polynomial's catalogue entry.
TEST(Crc32c, KnownVectors) {
  std::string up(32, '\0'), down(32, '\0');
  for (int i = 0; i < 32; ++i) up[i] = static_cast<char>(i), down[i] = static_cast<char>(31 - i);
  std::string command(48, '\0');  // an iSCSI SCSI Read (10) command PDU
  command[0] = 0x01, command[1] = static_cast<char>(0xc0);
  command[16] = 0x14, command[22] = 0x04, command[27] = 0x14, command[31] = 0x18;
  command[32] = 0x28, command[40] = 0x02;
  const std::pair<std::string, uint32_t> vectors[] = {{std::string(32, '\0'), 0x8a9136aau},
                                                      {std::string(32, '\xff'), 0x62a8ab43u},
                                                      {up, 0x46dd794eu},
                                                      {down, 0x113fdb5cu},
                                                      {command, 0xd9963a56u},
                                                      {"123456789", 0xe3069283u},
                                                      {"", 0u}};
  for (const auto& [bytes, crc] : vectors) {
    EXPECT_EQ(Crc32c(bytes), crc);
    EXPECT_EQ(ExtendCrc32cPortable(0, bytes), crc);
  }
}

TEST(Crc32c, EveryLengthAndAlignment) {
  const std::string bytes = RandomBytes(2000, 1);
  for (size_t offset = 0; offset < 9; ++offset) {
    for (size_t size = 0; size < 1700; size += size < 40 ? 1 : 13) {
      const std::string_view part(bytes.data() + offset, size);
      const uint32_t crc = BitByBit(part);
      ASSERT_EQ(Crc32c(part), crc) << offset << " " << size;
      ASSERT_EQ(ExtendCrc32cPortable(0, part), crc) << offset << " " << size;
    }
  }
}

TEST(Crc32c, LargeAndInPieces) {
  const std::string bytes = RandomBytes(300'001, 2);
  const uint32_t crc = BitByBit(bytes);
  EXPECT_EQ(Crc32c(bytes), crc);
  EXPECT_EQ(ExtendCrc32cPortable(0, bytes), crc);
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    uint32_t sum = 0, portable = 0;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min<size_t>(random() % 60'000, bytes.size() - at);
      sum = ExtendCrc32c(sum, {bytes.data() + at, size});
      portable = ExtendCrc32cPortable(portable, {bytes.data() + at, size});
      at += size;
    }
    ASSERT_EQ(sum, crc);
    ASSERT_EQ(portable, crc);
  }
}

}  // namespace
}  // namespace muster
