// The compiler must not fuse floating-point operations in this file (-ffp-contract=off). Fused
// operations are explicit.
#include "common/data/image/pixels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "common/base/kernels.h"

#if defined(__x86_64__)
// On processors without FMA, the C library computes fused operations exactly but slowly.
#define MUSTER_FOR_PIXELS(KERNEL, name) \
  KERNEL(name##Baseline, ) KERNEL(name##Avx2, __attribute__((target("avx2,fma"))))
#define MUSTER_CHOOSE_FOR_PIXELS(name) (HasAvx2AndFma() ? name##Avx2 : name##Baseline)
#else
#define MUSTER_FOR_PIXELS(KERNEL, name) KERNEL(name##Baseline, )
#define MUSTER_CHOOSE_FOR_PIXELS(name) (name##Baseline)
#endif

namespace muster::data {
namespace {

#if defined(__x86_64__)
bool HasAvx2AndFma() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}
#endif

// The number of pixels that are processed together. The intermediate results fit in the L1 cache.
constexpr int64_t kBlock = 256;

// ---- Planes

MUSTER_KERNEL_INLINE void Split(const uint8_t* __restrict row, int64_t width, uint8_t* __restrict r,
                                uint8_t* __restrict g, uint8_t* __restrict b) {
  for (int64_t x = 0; x < width; ++x) {
    r[x] = row[3 * x];
    g[x] = row[3 * x + 1];
    b[x] = row[3 * x + 2];
  }
}
MUSTER_KERNEL_INLINE void Reverse(const uint8_t* __restrict from, int64_t width,
                                  uint8_t* __restrict to) {
  for (int64_t x = 0; x < width; ++x) to[width - 1 - x] = from[x];
}
// Splits one row into `part`, one buffer for each channel. Swaps left and right if `flip` is true.
MUSTER_KERNEL_INLINE void SplitRow(const uint8_t* row, int64_t width, int64_t channels, bool flip,
                                   uint8_t* scratch, uint8_t* const part[3]) {
  if (channels == 3) {
    if (!flip) return Split(row, width, part[0], part[1], part[2]);
    Split(row, width, scratch, scratch + width, scratch + 2 * width);
    for (int c = 0; c < 3; ++c) Reverse(scratch + c * width, width, part[c]);
  } else if (flip) {
    Reverse(row, width, part[0]);
  } else {
    std::copy(row, row + width, part[0]);
  }
}

#define MUSTER_COPY(name, attributes)                                                        \
  attributes void name(const PixelRows& rows, bool flip, uint8_t* scratch, uint8_t* to,      \
                       int64_t plane) {                                                      \
    for (int64_t y = 0; y < rows.height; ++y) {                                              \
      uint8_t* at = to + y * rows.width;                                                     \
      uint8_t* const part[3] = {at, at + plane, at + 2 * plane};                             \
      SplitRow(rows.data + y * rows.stride, rows.width, rows.channels, flip, scratch, part); \
    }                                                                                        \
  }
MUSTER_FOR_PIXELS(MUSTER_COPY, CopyPlanes)

MUSTER_KERNEL_INLINE void NormalizeRow(const uint8_t* __restrict from, int64_t width, float mean,
                                       float std, float* __restrict to) {
  constexpr auto kPart = static_cast<float>(1.0 / 255);
  for (int64_t x = 0; x < width; ++x) to[x] = (static_cast<float>(from[x]) * kPart - mean) / std;
}

#define MUSTER_NORMALIZE(name, attributes)                                                    \
  attributes void name(const PixelRows& rows, bool flip, const float* mean, const float* std, \
                       uint8_t* scratch, float* to) {                                         \
    const int64_t area = rows.height * rows.width;                                            \
    uint8_t* const part[3] = {scratch, scratch + rows.width, scratch + 2 * rows.width};       \
    for (int64_t y = 0; y < rows.height; ++y) {                                               \
      SplitRow(rows.data + y * rows.stride, rows.width, rows.channels, flip,                  \
               scratch + 3 * rows.width, part);                                               \
      for (int64_t c = 0; c < rows.channels; ++c)                                             \
        NormalizeRow(part[c], rows.width, mean[c], std[c], to + c * area + y * rows.width);   \
    }                                                                                         \
  }
MUSTER_FOR_PIXELS(MUSTER_NORMALIZE, NormalizePlanes)

// ---- Colours

// Maps each byte to a byte.
using Table = std::array<uint8_t, 256>;

void LookUp(const Table& table, uint8_t* pixels, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) pixels[i] = table[pixels[i]];
}

MUSTER_KERNEL_INLINE float Clamped(float value, float most) {
  value = value > 0 ? value : 0;
  return value < most ? value : most;
}

// Returns torchvision's grey value before truncation to an integer.
MUSTER_KERNEL_INLINE float Grey(float r, float g, float b) {
  return __builtin_fmaf(b, 0.114F, __builtin_fmaf(g, 0.587F, r * 0.2989F));
}

#define MUSTER_SUM_GREY(name, attributes)                                                          \
  attributes int64_t name(const uint8_t* pixels, int64_t count) {                                  \
    int64_t sum = 0;                                                                               \
    uint8_t r[kBlock], g[kBlock], b[kBlock];                                                       \
    for (int64_t begin = 0; begin < count; begin += kBlock) {                                      \
      const int64_t size = std::min(kBlock, count - begin);                                        \
      Split(pixels + 3 * begin, size, r, g, b);                                                    \
      int32_t of_block = 0;                                                                        \
      for (int64_t i = 0; i < size; ++i) of_block += static_cast<int32_t>(Grey(r[i], g[i], b[i])); \
      sum += of_block;                                                                             \
    }                                                                                              \
    return sum;                                                                                    \
  }
MUSTER_FOR_PIXELS(MUSTER_SUM_GREY, SumGrey)

MUSTER_KERNEL_INLINE void Join(const uint8_t* __restrict r, const uint8_t* __restrict g,
                               const uint8_t* __restrict b, int64_t size,
                               uint8_t* __restrict pixels) {
  for (int64_t i = 0; i < size; ++i) {
    pixels[3 * i] = r[i];
    pixels[3 * i + 1] = g[i];
    pixels[3 * i + 2] = b[i];
  }
}

MUSTER_KERNEL_INLINE uint8_t Blend(float grey, uint8_t value, float factor, float rest) {
  return static_cast<uint8_t>(static_cast<int32_t>(
      Clamped(__builtin_fmaf(grey, rest, static_cast<float>(value) * factor), 255)));
}

MUSTER_KERNEL_INLINE void SaturateBlock(uint8_t* __restrict r, uint8_t* __restrict g,
                                        uint8_t* __restrict b, float factor, float rest) {
  for (int64_t i = 0; i < kBlock; ++i) {
    const float grey = static_cast<float>(static_cast<int32_t>(Grey(r[i], g[i], b[i])));
    r[i] = Blend(grey, r[i], factor, rest);
    g[i] = Blend(grey, g[i], factor, rest);
    b[i] = Blend(grey, b[i], factor, rest);
  }
}

#define MUSTER_SATURATE(name, attributes)                                          \
  attributes void name(uint8_t* pixels, int64_t count, float factor, float rest) { \
    uint8_t r[kBlock] = {}, g[kBlock] = {}, b[kBlock] = {};                        \
    for (int64_t begin = 0; begin < count; begin += kBlock) {                      \
      const int64_t size = std::min(kBlock, count - begin);                        \
      Split(pixels + 3 * begin, size, r, g, b);                                    \
      SaturateBlock(r, g, b, factor, rest);                                        \
      Join(r, g, b, size, pixels + 3 * begin);                                     \
    }                                                                              \
  }
MUSTER_FOR_PIXELS(MUSTER_SATURATE, Saturate)

// Converts to hue, saturation and value, rotates the hue, and converts back, as torchvision does.
// The separate loops with arrays between them allow vectorization.
MUSTER_KERNEL_INLINE void TurnBlock(uint8_t* __restrict red, uint8_t* __restrict green,
                                    uint8_t* __restrict blue, float hue) {
  constexpr auto kPart = static_cast<float>(1.0 / 255), kSixth = static_cast<float>(1.0 / 6);
  constexpr auto kBack = static_cast<float>(255 + 1.0 - 1e-3);
  float r[kBlock], g[kBlock], b[kBlock], most[kBlock], least[kBlock], h[kBlock], s[kBlock];
  for (int64_t k = 0; k < kBlock; ++k) {
    r[k] = static_cast<float>(red[k]) * kPart;
    g[k] = static_cast<float>(green[k]) * kPart;
    b[k] = static_cast<float>(blue[k]) * kPart;
    const float gb_most = g[k] > b[k] ? g[k] : b[k], gb_least = g[k] < b[k] ? g[k] : b[k];
    most[k] = r[k] > gb_most ? r[k] : gb_most;
    least[k] = r[k] < gb_least ? r[k] : gb_least;
  }
  for (int64_t k = 0; k < kBlock; ++k) {
    const float v = most[k], range = v - least[k];
    const float divisor = range > 0 ? range : 1;
    s[k] = range / (v > 0 ? v : 1);
    const float rc = (v - r[k]) / divisor, gc = (v - g[k]) / divisor, bc = (v - b[k]) / divisor;
    const float of_g = (rc + 2) - bc, of_b = (gc + 4) - rc, of_r = bc - gc;
    const float not_r = v == g[k] ? of_g : of_b;
    h[k] = (v == r[k] ? of_r : not_r) * kSixth + 1;
  }
  for (int64_t k = 0; k < kBlock; ++k) {
    float turned = h[k] - static_cast<float>(static_cast<int32_t>(h[k])) + hue;
    turned = turned - static_cast<float>(static_cast<int32_t>(turned));
    h[k] = (turned < 0 ? turned + 1 : turned) * 6;
  }
  for (int64_t k = 0; k < kBlock; ++k) {
    const auto sector = static_cast<int32_t>(h[k]);  // Sector 6 equals sector 0.
    const float f = h[k] - static_cast<float>(sector), sf = s[k] * f, rest = 1 - s[k];
    const float v = most[k];
    const float q = Clamped((1 - sf) * v, 1), t = Clamped((sf + rest) * v, 1),
                p = Clamped(rest * v, 1);
    // Selects the values of the sector. Sums with weights 0 and 1 are exact and need no branches.
    const auto in = [sector](int32_t sixth) { return static_cast<float>(sector == sixth); };
    const float red_green = in(0) + in(6), green_red = in(1), green_blue = in(2),
                blue_green = in(3), blue_red = in(4), red_blue = in(5);
    r[k] =
        v * (red_green + red_blue) + q * green_red + t * blue_red + p * (green_blue + blue_green);
    g[k] =
        v * (green_red + green_blue) + q * blue_green + t * red_green + p * (blue_red + red_blue);
    b[k] =
        v * (blue_green + blue_red) + q * red_blue + t * green_blue + p * (red_green + green_red);
  }
  for (int64_t k = 0; k < kBlock; ++k) {
    red[k] = static_cast<uint8_t>(static_cast<int32_t>(r[k] * kBack));
    green[k] = static_cast<uint8_t>(static_cast<int32_t>(g[k] * kBack));
    blue[k] = static_cast<uint8_t>(static_cast<int32_t>(b[k] * kBack));
  }
}

#define MUSTER_TURN(name, attributes)                               \
  attributes void name(uint8_t* pixels, int64_t count, float hue) { \
    uint8_t r[kBlock] = {}, g[kBlock] = {}, b[kBlock] = {};         \
    for (int64_t begin = 0; begin < count; begin += kBlock) {       \
      const int64_t size = std::min(kBlock, count - begin);         \
      Split(pixels + 3 * begin, size, r, g, b);                     \
      TurnBlock(r, g, b, hue);                                      \
      Join(r, g, b, size, pixels + 3 * begin);                      \
    }                                                               \
  }
MUSTER_FOR_PIXELS(MUSTER_TURN, Turn)

#define MUSTER_MIX(name, attributes)                                                   \
  attributes void name(const float* own, const float* other, float lambda, float rest, \
                       int64_t count, float* out) {                                    \
    for (int64_t i = 0; i < count; ++i) out[i] = other[i] * rest + own[i] * lambda;    \
  }
MUSTER_FOR_PIXELS(MUSTER_MIX, Mix)

}  // namespace

void CopyPlanes(const PixelRows& rows, bool flip, uint8_t* planes, int64_t plane) {
  static const auto kernel = MUSTER_CHOOSE_FOR_PIXELS(CopyPlanes);
  std::vector<uint8_t> scratch(flip ? 3 * rows.width : 0);
  kernel(rows, flip, scratch.data(), planes, plane);
}

void NormalizePlanes(const PixelRows& rows, bool flip, const float* mean, const float* std,
                     float* planes) {
  static const auto kernel = MUSTER_CHOOSE_FOR_PIXELS(NormalizePlanes);
  std::vector<uint8_t> scratch(6 * rows.width);
  kernel(rows, flip, mean, std, scratch.data(), planes);
}

void AdjustBrightness(uint8_t* pixels, int64_t bytes, double factor) {
  Table table;
  for (int v = 0; v < 256; ++v)
    table[v] =
        static_cast<uint8_t>(Clamped(static_cast<float>(v) * static_cast<float>(factor), 255));
  LookUp(table, pixels, bytes);
}

void AdjustContrast(uint8_t* pixels, int64_t count, int64_t channels, double factor) {
  static const auto sum_grey = MUSTER_CHOOSE_FOR_PIXELS(SumGrey);
  int64_t sum = 0;
  if (channels == 3) {
    sum = sum_grey(pixels, count);
  } else {
    for (int64_t i = 0; i < count; ++i) sum += pixels[i];
  }
  const float mean = static_cast<float>(sum) / static_cast<float>(count);
  const auto rest = static_cast<float>(1 - factor);
  Table table;
  for (int v = 0; v < 256; ++v) {
    const float scaled = static_cast<float>(v) * static_cast<float>(factor);
    table[v] = static_cast<uint8_t>(Clamped(std::fma(mean, rest, scaled), 255));
  }
  LookUp(table, pixels, count * channels);
}

void AdjustSaturation(uint8_t* pixels, int64_t count, double factor) {
  static const auto kernel = MUSTER_CHOOSE_FOR_PIXELS(Saturate);
  kernel(pixels, count, static_cast<float>(factor), static_cast<float>(1 - factor));
}

void AdjustHue(uint8_t* pixels, int64_t count, double hue) {
  static const auto kernel = MUSTER_CHOOSE_FOR_PIXELS(Turn);
  kernel(pixels, count, static_cast<float>(hue));
}

void MixFloats(const float* own, const float* other, float lambda, float rest, int64_t count,
               float* out) {
  static const auto kernel = MUSTER_CHOOSE_FOR_PIXELS(Mix);
  kernel(own, other, lambda, rest, count, out);
}

}  // namespace muster::data
