#include "common/push_pull/rows/row_values.h"

#include <algorithm>
#include <cmath>

#include "common/base/float16.h"
#include "common/base/kernels.h"
#include "common/push_pull/rows/row_spread.h"

// Compiled without contraction to fused multiply-adds, like update_kernels.cc.

namespace muster::push_pull {
namespace {

constexpr uint32_t kInfinity = 0x7f800000, kSign = 0x80000000;

// Infinity and NaN are unchanged.
MUSTER_KERNEL_INLINE float Limited(float x, float largest) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x), size = bits & ~kSign;
  const uint32_t most = __builtin_bit_cast(uint32_t, largest);
  const uint32_t limited = size > most && size < kInfinity ? most : size;
  return __builtin_bit_cast(float, limited | (bits & kSign));
}

template <typename Half>
MUSTER_KERNEL_INLINE void NarrowAll(const float* __restrict in, uint16_t* __restrict out,
                                    int64_t count, float largest) {
  for (int64_t i = 0; i < count; ++i) {
    Half half;
    Narrow(Limited(in[i], largest), &half);
    out[i] = half.bits;
  }
}

// Returns 16 pseudo-random bits: the finalizer of murmur3 (Appleby) over a count from `chance`.
MUSTER_KERNEL_INLINE uint32_t Noise(uint32_t chance, uint32_t i) {
  uint32_t x = chance + i * 0x9e3779b9u;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x >> 16;
}

// The discarded bits are the probability of rounding away from zero.
MUSTER_KERNEL_INLINE void RoundAtRandom(const float* __restrict in, uint16_t* __restrict out,
                                        int64_t count, uint32_t chance) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, Limited(in[i], 0x1.fep127f));
    const uint32_t moved = bits + Noise(chance, static_cast<uint32_t>(i));
    out[i] = static_cast<uint16_t>(((bits & ~kSign) >= kInfinity ? bits : moved) >> 16);
  }
}

template <typename Half>
MUSTER_KERNEL_INLINE void WidenAll(const uint16_t* __restrict in, float* __restrict out,
                                   int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = Widen(Half{in[i]});
}

#define MUSTER_NEAREST(name, attributes)                                        \
  attributes void name(RowType to, const float* in, uint16_t* out, int64_t n) { \
    to == RowType::kBFloat16 ? NarrowAll<BFloat16>(in, out, n, 0x1.fep127f)     \
                             : NarrowAll<Float16>(in, out, n, 65504);           \
  }
#define MUSTER_RANDOM(name, attributes)                                              \
  attributes void name(const float* in, uint16_t* out, int64_t n, uint32_t chance) { \
    RoundAtRandom(in, out, n, chance);                                               \
  }
#define MUSTER_LOAD(name, attributes)                                                            \
  attributes void name(RowType from, const uint16_t* in, float* out, int64_t n) {                \
    from == RowType::kBFloat16 ? WidenAll<BFloat16>(in, out, n) : WidenAll<Float16>(in, out, n); \
  }
MUSTER_FOR_EACH_PROCESSOR(MUSTER_NEAREST, Nearest)
MUSTER_FOR_EACH_PROCESSOR(MUSTER_RANDOM, Random)
MUSTER_FOR_EACH_PROCESSOR(MUSTER_LOAD, LoadHalves)

uint16_t* Halves(float* memory) { return reinterpret_cast<uint16_t*>(memory); }

}  // namespace

void StoreNearest(RowType type, std::span<const float> row, float* to) {
  static const auto kernel = MUSTER_CHOOSE_KERNEL(Nearest);
  if (type == RowType::kFloat32) {
    std::copy(row.begin(), row.end(), to);
  } else {
    kernel(type, row.data(), Halves(to), static_cast<int64_t>(row.size()));
  }
}

void StoreRounded(RowType type, std::span<const float> row, uint64_t chance, float* to) {
  static const auto kernel = MUSTER_CHOOSE_KERNEL(Random);
  if (type != RowType::kBFloat16) return StoreNearest(type, row, to);
  kernel(row.data(), Halves(to), static_cast<int64_t>(row.size()),
         static_cast<uint32_t>(chance >> 32));
}

void Load(RowType type, const float* from, std::span<float> row) {
  static const auto kernel = MUSTER_CHOOSE_KERNEL(LoadHalves);
  if (type == RowType::kFloat32) {
    CopyRow(from, static_cast<int64_t>(row.size()), row.data());
  } else {
    kernel(type, reinterpret_cast<const uint16_t*>(from), row.data(),
           static_cast<int64_t>(row.size()));
  }
}

void ClipRows(const ClipOptions& clip, int64_t width, std::span<float> gradients) {
  if (clip.clipvalue > 0) {
    const auto most = static_cast<float>(clip.clipvalue);
    for (float& g : gradients) g = std::clamp(g, -most, most);
  }
  if (clip.clipnorm <= 0) return;
  const auto w = static_cast<size_t>(width);
  for (size_t begin = 0; begin < gradients.size(); begin += w) {
    double squares = 0;
    for (size_t i = 0; i < w; ++i)
      squares += static_cast<double>(gradients[begin + i]) * gradients[begin + i];
    const double norm = std::sqrt(squares);
    if (norm <= clip.clipnorm) continue;
    const auto factor = static_cast<float>(clip.clipnorm / norm);
    for (size_t i = 0; i < w; ++i) gradients[begin + i] *= factor;
  }
}

}  // namespace muster::push_pull
