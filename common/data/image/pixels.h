// Loops over the pixels of a picture. The results equal torchvision's on uint8 tensors bit by bit
// where its kernels use fused multiply-add (x86-64 with AVX2 and FMA, ARM). They are the same on
// every processor. Needs no LibTorch. Thread-safe.
#pragma once

#include <cstdint>

namespace muster::data {

// Rows of pixels, `stride` bytes apart. A row is dense, and the channels of a pixel (1 or 3) are
// adjacent.
struct PixelRows {
  const uint8_t* data = nullptr;
  int64_t height = 0, width = 0, channels = 3;
  int64_t stride = 0;
};

// Copies to [channels][height][width]. Rows are dense, and channels are `plane` bytes apart (at
// least height x width). `flip` swaps left and right.
void CopyPlanes(const PixelRows& rows, bool flip, uint8_t* planes, int64_t plane);
// Copies to dense float32 planes as (byte * (1 / 255) - mean) / std, with a mean and std for each
// channel.
void NormalizePlanes(const PixelRows& rows, bool flip, const float* mean, const float* std,
                     float* planes);

// Change dense pixels in place. Factors are not negative, and hue is in [-0.5, 0.5].
void AdjustBrightness(uint8_t* pixels, int64_t bytes, double factor);
void AdjustContrast(uint8_t* pixels, int64_t count, int64_t channels, double factor);
void AdjustSaturation(uint8_t* pixels, int64_t count, double factor);  // For 3 channels.
void AdjustHue(uint8_t* pixels, int64_t count, double hue);            // For 3 channels.

// Computes out[i] = other[i] * (1 - lambda) + own[i] * lambda and rounds each operation. `out` may
// be one of the inputs.
void MixFloats(const float* own, const float* other, float lambda, float rest, int64_t count,
               float* out);

}  // namespace muster::data
