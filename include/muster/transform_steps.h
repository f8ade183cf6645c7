// Plain values that describe transformations of images. The functions of muster/transforms.h carry
// out the transformations. Names, arguments and arithmetic are those of torchvision.transforms.v2
// on uint8 tensors, but the random numbers differ. This header needs no LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace muster::data {

// Resizes to height x width. If shorter_side is above 0, resizes the shorter side to this length
// instead, and keeps the aspect ratio. The interpolation is bilinear with antialiasing.
struct Resize {
  int64_t height = 0, width = 0;
  int64_t shorter_side = 0;  // In pixels. 0: use height and width.
};

// Crops the center of the image. An image that is smaller than the crop is an error.
struct CenterCrop {
  int64_t height = 0, width = 0;
};

// Crops at a random position, after padding the image with zeros. A padded image that is smaller
// than the crop is an error.
struct RandomCrop {
  int64_t height = 0, width = 0;
  std::array<int64_t, 4> padding = {};  // The order is left, top, right, bottom.
};

// Crops a random part of the image and resizes that part to height x width. `scale` is the range of
// the part's area as a fraction of the image's area. `ratio` is the range of the part's width
// divided by its height.
struct RandomResizedCrop {
  int64_t height = 0, width = 0;
  std::pair<double, double> scale = {0.08, 1};           // In (0, 1].
  std::pair<double, double> ratio = {3.0 / 4, 4.0 / 3};  // Above 0.
};

// Swaps left and right with probability p.
struct RandomHorizontalFlip {
  double p = 0.5;
};

// Multiplies brightness, contrast and saturation by random factors from their ranges. Shifts the
// hue by a random fraction of the color circle. The order of these changes is random. A factor
// range of {1, 1} leaves its property unchanged. A hue range of {0, 0} leaves the hue unchanged.
struct ColorJitter {
  // Ranges of factors. A factor is at least 0.
  std::pair<double, double> brightness = {1, 1}, contrast = {1, 1}, saturation = {1, 1};
  std::pair<double, double> hue = {0, 0};  // In [-0.5, 0.5].
};

// Divides bytes by 255 to get float32 values in [0, 1], and computes (value - mean) / std. `mean`
// and `std` have one value per channel, or one value for all channels. Normalize is allowed only as
// the last step.
struct Normalize {
  std::vector<double> mean, std;
};
// Returns the step that maps byte 0 to `low` and byte 255 to `high`, linearly. REQUIRES: low !=
// high.
inline Normalize NormalizeTo(double low, double high) {
  return {{-low / (high - low)}, {1 / (high - low)}};
}

using Transform = std::variant<Resize, CenterCrop, RandomCrop, RandomResizedCrop,
                               RandomHorizontalFlip, ColorJitter, Normalize>;

// Options of MixUp (muster/transforms.h), which mixes each example with another example: lambda *
// first + (1 - lambda) * second. lambda is drawn from the distribution Beta(alpha, alpha). A label
// becomes one float32 value per class.
struct MixUpOptions {
  double alpha = 1;
  int64_t classes = 0;
};

}  // namespace muster::data
