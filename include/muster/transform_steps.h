// Transformations of images, as plain values in the order of their application. Names, arguments
// and arithmetic are those of torchvision.transforms.v2 on uint8 tensors. Random numbers differ
// from torchvision's. muster/transforms.h applies these steps. Needs no LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace muster::data {

// Bilinear, with antialiasing. Resizes to height x width, or to a given shorter side with the
// aspect ratio kept.
struct Resize {
  int64_t height = 0, width = 0;
  int64_t shorter_side = 0;  // Replaces height and width.
};

// All crops refuse an image that is smaller than the crop.
struct CenterCrop {
  int64_t height = 0, width = 0;
};

// Crops at a random position, after padding the image with zeros.
struct RandomCrop {
  int64_t height = 0, width = 0;
  std::array<int64_t, 4> padding = {};  // Left, top, right, bottom.
};

// Crops a random part of the image and resizes it. The part has a random area, as a fraction of the
// image's, and a random ratio of width to height.
struct RandomResizedCrop {
  int64_t height = 0, width = 0;
  std::pair<double, double> scale = {0.08, 1};           // In (0, 1].
  std::pair<double, double> ratio = {3.0 / 4, 4.0 / 3};  // Above 0.
};

// Mirrors left and right with probability p.
struct RandomHorizontalFlip {
  double p = 0.5;
};

// Adjusts the properties in random order, each by a random factor from its range. Hue is shifted by
// a fraction of the circle. {1, 1} ({0, 0} for hue) leaves a property unchanged.
struct ColorJitter {
  // Not below 0.
  std::pair<double, double> brightness = {1, 1}, contrast = {1, 1}, saturation = {1, 1};
  std::pair<double, double> hue = {0, 0};  // In [-0.5, 0.5].
};

// Scales bytes to float32 from 0 to 1, then computes (value - mean) / std. Mean and standard
// deviation are per channel, or one for all channels. Allowed only as the last step.
struct Normalize {
  std::vector<double> mean, std;
};
// Maps bytes 0 to 255 to the range from `low` to `high`. REQUIRES: low != high.
inline Normalize NormalizeTo(double low, double high) {
  return {{-low / (high - low)}, {1 / (high - low)}};
}

using Transform = std::variant<Resize, CenterCrop, RandomCrop, RandomResizedCrop,
                               RandomHorizontalFlip, ColorJitter, Normalize>;

// Mixes each image and its label with another one. Labels become float32 [classes]. The result is
// lambda times the first plus 1 - lambda times the second, with lambda from Beta(alpha, alpha).
struct MixUpOptions {
  double alpha = 1;
  int64_t classes = 0;
};

}  // namespace muster::data
