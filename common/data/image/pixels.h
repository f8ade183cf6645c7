// Loops over the pixels of a picture. The arithmetic is torchvision's on uint8 tensors, to the bit
// where its kernels use fused multiply-add (x86-64 with AVX2 and FMA, ARM), and the same on every
// processor. Needs no LibTorch. Any thread.
#pragma once

#include <cstdint>

namespace muster::data {

// Rows of pixels, `stride` bytes from one to the next; within a row they are dense, the channels of
// a pixel (1 or 3) side by side.
struct PixelRows {
  const uint8_t* data = nullptr;
  int64_t height = 0, width = 0, channels = 3;
  int64_t stride = 0;
};

// To [channels][height][width], rows dense, `plane` bytes from one channel to the next (at least
// height x width); `flip` left for right.
void CopyPlanes(const PixelRows& rows, bool flip, uint8_t* planes, int64_t plane);
// The same, dense, as (byte * (1 / 255) - mean) / std in float32, with a mean and std for each
// channel.
void NormalizePlanes(const PixelRows& rows, bool flip, const float* mean, const float* std,
                     float* planes);

// Of dense pixels, in place. Factors are not negative, hue is in [-0.5, 0.5].
void AdjustBrightness(uint8_t* pixels, int64_t bytes, double factor);
void AdjustContrast(uint8_t* pixels, int64_t count, int64_t channels, double factor);
void AdjustSaturation(uint8_t* pixels, int64_t count, double factor);  // of 3 channels
void AdjustHue(uint8_t* pixels, int64_t count, double hue);            // likewise

// out[i] = other[i] * (1 - lambda) + own[i] * lambda, each operation rounded; `out` may be one of
// them.
void MixFloats(const float* own, const float* other, float lambda, float rest, int64_t count,
               float* out);

}  // namespace muster::data
