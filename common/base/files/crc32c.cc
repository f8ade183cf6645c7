#include "common/base/files/crc32c.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace muster {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;
using Table = std::array<uint32_t, 256>;

// Returns tables in which [k][b] is the effect on the checksum of a byte b before k zero bytes.
constexpr std::array<Table, 8> MakeTables() {
  std::array<Table, 8> tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr std::array<Table, 8> kTables = MakeTables();

uint32_t Bytewise(uint32_t crc, const char* p, size_t n) {
  for (; n > 0; --n) crc = kTables[0][(crc ^ static_cast<uint8_t>(*p++)) & 0xFF] ^ (crc >> 8);
  return crc;
}

#if defined(__x86_64__)

uint64_t Load(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// Computes the checksum after N further zero bytes. This function of the checksum is linear over
// GF(2), so four table look-ups compute it.
template <size_t N>
class ZeroBytes {
 public:
  ZeroBytes() {
    static_assert(std::has_single_bit(N));
    Matrix matrix;  // The effect of one further zero bit.
    matrix[0] = kPolynomial;
    for (int bit = 1; bit < 32; ++bit) matrix[bit] = 1u << (bit - 1);
    for (size_t bits = 1; bits < N * 8; bits *= 2) matrix = Squared(matrix);
    for (int byte = 0; byte < 4; ++byte) {
      for (uint32_t value = 0; value < 256; ++value) {
        tables_[byte][value] = Times(matrix, value << (8 * byte));
      }
    }
  }
  uint32_t After(uint32_t crc) const {
    return tables_[0][crc & 0xFF] ^ tables_[1][(crc >> 8) & 0xFF] ^ tables_[2][(crc >> 16) & 0xFF] ^
           tables_[3][crc >> 24];
  }

 private:
  using Matrix = std::array<uint32_t, 32>;  // [b]: the value that bit b becomes.
  static uint32_t Times(const Matrix& matrix, uint32_t vector) {
    uint32_t sum = 0;
    for (int bit = 0; vector != 0; ++bit, vector >>= 1) sum ^= (vector & 1) != 0 ? matrix[bit] : 0;
    return sum;
  }
  static Matrix Squared(const Matrix& matrix) {
    Matrix squared;
    for (int bit = 0; bit < 32; ++bit) squared[bit] = Times(matrix, matrix[bit]);
    return squared;
  }
  std::array<Table, 4> tables_;
};

// Processes three strands of N bytes in parallel, then joins their checksums. The CRC instruction
// has a latency of three cycles, but the processor can start one in each cycle.
template <size_t N>
__attribute__((target("sse4.2"))) uint32_t ThreeStrands(uint32_t crc, const char*& p, size_t& n) {
  static const ZeroBytes<N> zeros;
  while (n >= 3 * N) {
    uint64_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < N; i += 8) {
      a = _mm_crc32_u64(a, Load(p + i));
      b = _mm_crc32_u64(b, Load(p + N + i));
      c = _mm_crc32_u64(c, Load(p + 2 * N + i));
    }
    crc = zeros.After(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
    crc = zeros.After(crc) ^ static_cast<uint32_t>(c);
    p += 3 * N;
    n -= 3 * N;
  }
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t WithInstruction(uint32_t crc, const char* p, size_t n) {
  crc = ThreeStrands<8192>(crc, p, n);
  crc = ThreeStrands<256>(crc, p, n);
  uint64_t wide = crc;
  for (; n >= 8; p += 8, n -= 8) wide = _mm_crc32_u64(wide, Load(p));
  crc = static_cast<uint32_t>(wide);
  for (; n > 0; --n) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*p++));
  return crc;
}

bool HasInstruction() {
  static const bool has = (__builtin_cpu_init(), __builtin_cpu_supports("sse4.2") != 0);
  return has;
}

#endif

}  // namespace

uint32_t ExtendCrc32cPortable(uint32_t crc, std::string_view bytes) {
  const char* p = bytes.data();
  size_t n = bytes.size();
  crc = ~crc;
  for (; n >= 8; p += 8, n -= 8) {
    uint8_t b[8];
    std::memcpy(b, p, sizeof b);
    for (int i = 0; i < 4; ++i) b[i] ^= static_cast<uint8_t>(crc >> (8 * i));
    crc = 0;
    for (int i = 0; i < 8; ++i) crc ^= kTables[7 - i][b[i]];
  }
  return ~Bytewise(crc, p, n);
}

uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes) {
#if defined(__x86_64__)
  if (HasInstruction()) return ~WithInstruction(~crc, bytes.data(), bytes.size());
#endif
  return ExtendCrc32cPortable(crc, bytes);
}

}  // namespace muster
