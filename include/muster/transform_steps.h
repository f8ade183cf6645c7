// What is done to a picture on its way into a batch, one step after another. Names, arguments and
// arithmetic are those of torchvision.transforms.v2 on uint8 tensors, the random numbers are our
// own. Values alone; what applies them is muster/transforms.h. Needs no LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

namespace muster::data {

// Bilinear, with antialiasing. Either to height x width, or to a shorter side, with the proportions
// as they are.
struct Resize {
  int64_t height = 0, width = 0;
  int64_t shorter_side = 0;  // instead of the two
};

// Crops are refused where the picture is smaller.
struct CenterCrop {
  int64_t height = 0, width = 0;
};

// Anywhere in the picture, which gets borders of zeros first.
struct RandomCrop {
  int64_t height = 0, width = 0;
  std::array<int64_t, 4> padding = {};  // left, top, right, bottom
};

// A part of the picture with a random area, as a share of the picture's, and a random ratio of
// width to height, resized.
struct RandomResizedCrop {
  int64_t height = 0, width = 0;
  std::pair<double, double> scale = {0.08, 1};           // in (0, 1]
  std::pair<double, double> ratio = {3.0 / 4, 4.0 / 3};  // above 0
};

// Left for right.
struct RandomHorizontalFlip {
  double p = 0.5;
};

// In an order of chance, each by a factor from its range; hue turns by a part of the circle.
// {1, 1} (of hue {0, 0}) leaves a property as it is.
struct ColorJitter {
  std::pair<double, double> brightness = {1, 1}, contrast = {1, 1}, saturation = {1, 1};  // from 0
  std::pair<double, double> hue = {0, 0};  // in [-0.5, 0.5]
};

// Bytes become float32 from 0 to 1, and then (value - mean) / std, with a mean and a standard
// deviation for each channel, or one for all of them. Only as the last step.
struct Normalize {
  std::vector<double> mean, std;
};
// Bytes 0 to 255 become `low` to `high`. REQUIRES: they differ.
inline Normalize NormalizeTo(double low, double high) {
  return {{-low / (high - low)}, {1 / (high - low)}};
}

using Transform = std::variant<Resize, CenterCrop, RandomCrop, RandomResizedCrop,
                               RandomHorizontalFlip, ColorJitter, Normalize>;

// Each picture with another one, and their labels with them, as float32 [classes]: lambda times the
// one plus 1 - lambda times the other, with a lambda from Beta(alpha, alpha).
struct MixUpOptions {
  double alpha = 1;
  int64_t classes = 0;
};

}  // namespace muster::data
