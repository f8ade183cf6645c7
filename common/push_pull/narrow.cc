#include "common/push_pull/narrow.h"

#include "common/base/float16.h"
#include "common/base/kernels.h"

namespace muster::push_pull {
namespace {

template <typename Half>
inline constexpr float kLargest = 65504;  // The largest value of float16.
template <>
inline constexpr float kLargest<BFloat16> = 0x1.fep127f;

// Infinity and NaN are kept, so that servers refuse them.
MUSTER_KERNEL_INLINE float Limited(float x, float largest) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x), size = bits & 0x7fffffff;
  const uint32_t most = __builtin_bit_cast(uint32_t, largest);
  const uint32_t limited = size > most && size < 0x7f800000 ? most : size;
  return __builtin_bit_cast(float, limited | (bits & 0x80000000));
}

template <typename Half>
MUSTER_KERNEL_INLINE void NarrowAll(const float* __restrict in, uint16_t* __restrict out,
                                    int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Half half;
    muster::Narrow(Limited(in[i], kLargest<Half>), &half);
    out[i] = half.bits;
  }
}
template <typename Half>
MUSTER_KERNEL_INLINE void WidenAll(const uint16_t* __restrict in, float* __restrict out,
                                   int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = muster::Widen(Half{in[i]});
}

#define MUSTER_NARROW(name, attributes)                                             \
  attributes void name(Compression to, const float* in, uint16_t* out, int64_t n) { \
    to == Compression::kBFloat16 ? NarrowAll<BFloat16>(in, out, n)                  \
                                 : NarrowAll<Float16>(in, out, n);                  \
  }
#define MUSTER_WIDEN(name, attributes)                                                \
  attributes void name(Compression from, const uint16_t* in, float* out, int64_t n) { \
    from == Compression::kBFloat16 ? WidenAll<BFloat16>(in, out, n)                   \
                                   : WidenAll<Float16>(in, out, n);                   \
  }
MUSTER_FOR_EACH_PROCESSOR(MUSTER_NARROW, Narrow)
MUSTER_FOR_EACH_PROCESSOR(MUSTER_WIDEN, Widen)

}  // namespace

void Narrow(Compression to, std::span<const float> values, uint16_t* out) {
  static const auto kernel = MUSTER_CHOOSE_KERNEL(Narrow);
  kernel(to, values.data(), out, static_cast<int64_t>(values.size()));
}

void Widen(Compression from, const uint16_t* in, std::span<float> values) {
  static const auto kernel = MUSTER_CHOOSE_KERNEL(Widen);
  kernel(from, in, values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace muster::push_pull
