// Converts bfloat16 and IEEE half (float16) to and from single precision. The functions have no
// branches, so compilers can vectorize loops over them. Only kernels (loops over bulk data, see
// kernels.h) call these functions.
#pragma once

#include <cstdint>

#include "common/base/kernels.h"

namespace muster {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

MUSTER_KERNEL_INLINE float Widen(BFloat16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}
// Converts IEEE half to single. Does not need the F16C instructions.
MUSTER_KERNEL_INLINE float Widen(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t rest = static_cast<uint32_t>(x.bits & 0x7fff) << 13;
  // Multiplying by 2^112 converts the exponent's bias and normalizes subnormals, without rounding.
  const float finite = __builtin_bit_cast(float, rest) * 0x1p112f;
  const uint32_t special = rest | 0x7f800000;  // Infinity, NaN.
  const uint32_t bits = rest >= 0x0f800000 ? special : __builtin_bit_cast(uint32_t, finite);
  return __builtin_bit_cast(float, bits | sign);
}

// Rounds to nearest, ties to even. NaN stays NaN.
MUSTER_KERNEL_INLINE void Narrow(float x, BFloat16* to) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40;
  to->bits = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}
MUSTER_KERNEL_INLINE void Narrow(float x, Float16* to) {
  const uint32_t all = __builtin_bit_cast(uint32_t, x);
  const uint32_t sign = (all >> 16) & 0x8000;
  const uint32_t bits = all & 0x7fffffff;
  // Normal results: converts the exponent's bias, and rounds off the 13 lowest bits to nearest
  // even.
  const uint32_t normal = (bits - 0x38000000 + 0xfff + ((bits >> 13) & 1)) >> 13;
  // Subnormal results: the sum with 0.5 has a last bit of 2^-24, so the addition rounds to that
  // bit.
  const uint32_t subnormal =
      __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, bits) + 0.5f) - 0x3f000000;
  uint32_t half = bits < 0x38800000 ? subnormal : normal;
  half = bits >= 0x47800000 ? 0x7c00 : half;  // Too large, or infinity.
  half = bits > 0x7f800000 ? 0x7e00 : half;   // NaN.
  to->bits = static_cast<uint16_t>(half | sign);
}

}  // namespace muster
