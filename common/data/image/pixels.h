// Operations on the pixels of a picture. The results are the same on every processor. They equal
// torchvision's results on uint8 tensors bit by bit if torchvision's kernels use fused multiply-add
// (x86-64 with AVX2 and FMA, ARM). Needs no LibTorch. Thread-safe.
#pragma once

#include <cstdint>

namespace muster::data {

// A view of rows of pixels. The starts of two adjacent rows are `stride` bytes apart. The pixels of
// a row are adjacent, and the 1 or 3 channels of a pixel are adjacent.
struct PixelRows {
  const uint8_t* data = nullptr;
  int64_t height = 0, width = 0, channels = 3;
  int64_t stride = 0;
};

// Copies pixels to planes, [channels][height][width]. The rows of a plane are dense. The starts of
// two planes are `plane` bytes apart, at least height x width. `flip` swaps left and right.
void CopyPlanes(const PixelRows& rows, bool flip, uint8_t* planes, int64_t plane);
// Converts pixels to dense float32 planes: (byte * (1 / 255) - mean) / std. `mean` and `std` have
// one value for each channel.
void NormalizePlanes(const PixelRows& rows, bool flip, const float* mean, const float* std,
                     float* planes);

// These functions change dense pixels in place. `count` is the number of pixels. Factors must not
// be negative. `hue` must be in [-0.5, 0.5].
void AdjustBrightness(uint8_t* pixels, int64_t bytes, double factor);
void AdjustContrast(uint8_t* pixels, int64_t count, int64_t channels, double factor);
void AdjustSaturation(uint8_t* pixels, int64_t count, double factor);  // For 3 channels.
void AdjustHue(uint8_t* pixels, int64_t count, double hue);            // For 3 channels.

// Computes out[i] = other[i] * rest + own[i] * lambda, and rounds after each operation. `rest` is 1
// - lambda. `out` may be one of the inputs.
void MixFloats(const float* own, const float* other, float lambda, float rest, int64_t count,
               float* out);

}  // namespace muster::data
