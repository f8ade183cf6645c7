#include "common/collective/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>

// Compiled three times with other instruction sets and chosen by the processor found at run time.
// Not target_clones: its ifunc resolvers run before a sanitizer's runtime is up.
#if defined(__x86_64__)
#define MUSTER_KERNEL_INLINE inline __attribute__((always_inline))
#else
#define MUSTER_KERNEL_INLINE inline
#endif

namespace muster {
namespace {

constexpr int64_t kBlock = 2048;  // elements reduced at a time: the accumulator stays in L1

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

MUSTER_KERNEL_INLINE float Widen(float x) { return x; }
MUSTER_KERNEL_INLINE double Widen(double x) { return x; }
MUSTER_KERNEL_INLINE int64_t Widen(int64_t x) { return x; }
MUSTER_KERNEL_INLINE float Widen(BFloat16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}
// IEEE half to single by integers only, branch-free: vectorises without F16C.
MUSTER_KERNEL_INLINE float Widen(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  const uint32_t rest = static_cast<uint32_t>(x.bits & 0x7fff) << 13;
  // Scaling by 2^112 rebases the exponent and normalises subnormals exactly.
  const float finite = __builtin_bit_cast(float, rest) * 0x1p112f;
  const uint32_t special = rest | 0x7f800000;  // infinity, NaN
  const uint32_t bits = rest >= 0x0f800000 ? special : __builtin_bit_cast(uint32_t, finite);
  return __builtin_bit_cast(float, bits | sign);
}

MUSTER_KERNEL_INLINE void Narrow(float x, float* to) { *to = x; }
MUSTER_KERNEL_INLINE void Narrow(double x, double* to) { *to = x; }
MUSTER_KERNEL_INLINE void Narrow(int64_t x, int64_t* to) { *to = x; }
// Round to nearest, ties to even; NaN stays NaN.
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
  // Normal results: rebase the exponent, round to nearest even on the 13 bits that go.
  const uint32_t normal = (bits - 0x38000000 + 0xfff + ((bits >> 13) & 1)) >> 13;
  // Subnormal results: adding 0.5 lets the float adder do the rounding at 2^-24.
  const uint32_t subnormal =
      __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, bits) + 0.5f) - 0x3f000000;
  uint32_t half = bits < 0x38800000 ? subnormal : normal;
  half = bits >= 0x47800000 ? 0x7c00 : half;  // too large, infinity
  half = bits > 0x7f800000 ? 0x7e00 : half;   // NaN
  to->bits = static_cast<uint16_t>(half | sign);
}

template <typename T>
MUSTER_KERNEL_INLINE T Add(T a, T b) {
  return a + b;
}
template <>
MUSTER_KERNEL_INLINE int64_t Add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <typename T>
MUSTER_KERNEL_INLINE T Max(T a, T b) {
  return (a > b || a != a) ? a : b;  // NaN wins
}

template <typename T, bool kMax>
MUSTER_KERNEL_INLINE T Apply(T a, T b) {
  if constexpr (kMax) return Max(a, b);
  return Add(a, b);
}

// The common case, two sources, nothing between load and store.
template <typename T, typename Wide, bool kMax>
MUSTER_KERNEL_INLINE void ReduceTwo(T* out, T* out2, const T* a, const T* b, int64_t count) {
  if (out2 == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) {
      Narrow(Apply<Wide, kMax>(Widen(a[i]), Widen(b[i])), &out[i]);
    }
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    T value;
    Narrow(Apply<Wide, kMax>(Widen(a[i]), Widen(b[i])), &value);
    out[i] = value;
    out2[i] = value;
  }
}

template <typename T, typename Wide, bool kMax>
MUSTER_KERNEL_INLINE void ReduceMany(std::span<void* const> outs,
                                     std::span<const void* const> sources, int64_t count,
                                     int64_t divisor) {
  if (sources.size() == 2 && divisor == 1 && (outs.size() == 1 || outs.size() == 2)) {
    return ReduceTwo<T, Wide, kMax>(
        static_cast<T*>(outs[0]), outs.size() == 2 ? static_cast<T*>(outs[1]) : nullptr,
        static_cast<const T*>(sources[0]), static_cast<const T*>(sources[1]), count);
  }
  alignas(64) Wide sum[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    const T* first = static_cast<const T*>(sources[0]) + at;
    for (int64_t i = 0; i < n; ++i) sum[i] = Widen(first[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* next = static_cast<const T*>(sources[s]) + at;
      for (int64_t i = 0; i < n; ++i) sum[i] = Apply<Wide, kMax>(sum[i], Widen(next[i]));
    }
    if (divisor != 1) {
      for (int64_t i = 0; i < n; ++i) sum[i] /= static_cast<Wide>(divisor);
    }
    for (void* out : outs) {
      T* to = static_cast<T*>(out) + at;
      for (int64_t i = 0; i < n; ++i) Narrow(sum[i], &to[i]);
    }
  }
}

template <typename T, typename Wide>
MUSTER_KERNEL_INLINE void ReduceTyped(std::span<void* const> outs,
                                      std::span<const void* const> sources, int64_t count,
                                      Reduction reduction) {
  if (reduction.max) {
    ReduceMany<T, Wide, true>(outs, sources, count, reduction.divisor);
  } else {
    ReduceMany<T, Wide, false>(outs, sources, count, reduction.divisor);
  }
}

#define MUSTER_KERNEL(name, attributes)                                                   \
  attributes void name(std::span<void* const> outs, std::span<const void* const> sources, \
                       int64_t count, DataType type, Reduction reduction) {               \
    switch (type) {                                                                       \
      case DataType::kFloat32:                                                            \
        return ReduceTyped<float, float>(outs, sources, count, reduction);                \
      case DataType::kFloat64:                                                            \
        return ReduceTyped<double, double>(outs, sources, count, reduction);              \
      case DataType::kFloat16:                                                            \
        return ReduceTyped<Float16, float>(outs, sources, count, reduction);              \
      case DataType::kBFloat16:                                                           \
        return ReduceTyped<BFloat16, float>(outs, sources, count, reduction);             \
      case DataType::kInt64:                                                              \
        return ReduceTyped<int64_t, int64_t>(outs, sources, count, reduction);            \
      case DataType::kByte:                                                               \
        break;                                                                            \
    }                                                                                     \
  }

using Kernel = void (*)(std::span<void* const>, std::span<const void* const>, int64_t, DataType,
                        Reduction);

#if defined(__x86_64__)
MUSTER_KERNEL(ReduceBaseline, )
MUSTER_KERNEL(ReduceAvx2, __attribute__((target("avx2"))))
MUSTER_KERNEL(ReduceAvx512, __attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512dq,"
                                                  "prefer-vector-width=512"))))
Kernel Choose() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    return ReduceAvx512;
  }
  return __builtin_cpu_supports("avx2") ? ReduceAvx2 : ReduceBaseline;
}
#else
MUSTER_KERNEL(ReduceBaseline, )
Kernel Choose() { return ReduceBaseline; }
#endif

}  // namespace

void ReduceElements(std::span<void* const> outs, std::span<const void* const> sources,
                    int64_t count, DataType type, Reduction reduction) {
  static const Kernel kernel = Choose();
  kernel(outs, sources, count, type, reduction);
}

}  // namespace muster
