// Checks the arguments of transforms, and the sizes of the resulting pictures, without a picture.
// Needs no LibTorch. Internal to common/data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "muster/transform_steps.h"

namespace muster::data {

struct WrongStep {
  size_t step = 0;
  std::string key;   // The name of the argument in a job. "": the step itself is wrong.
  std::string what;  // The problem, such as "must be ..., is ...".
};

// Returns the first step that is invalid, or that is invalid at its position. Returns nullopt if
// all steps are valid.
std::optional<WrongStep> FindWrongStep(const std::vector<Transform>& steps);

// The size of a picture. 0 means unknown.
struct PictureSize {
  int64_t height = 0, width = 0;
  int64_t shorter_side = 0;  // Set if only the length of the shorter side is known.
};
// Changes *size from the size before the steps to the size after the steps. Returns the first step
// that needs a larger picture, or whose result has more than kMaxPixels pixels. Returns nullopt if
// there is no such step.
std::optional<WrongStep> FindTooLarge(const std::vector<Transform>& steps, PictureSize* size);

// Returns the size after a Resize. REQUIRES: the size is known.
PictureSize Resized(const Resize& resize, int64_t height, int64_t width);
// Returns the error message if the result of a resize has more than kMaxPixels pixels, otherwise
// "".
std::string TooManyPixels(const PictureSize& from, const PictureSize& to);
// Returns the left or top margin of a part of length `part` at the centre of `whole`. Rounds halves
// to even, as Python and torchvision do.
int64_t Margin(int64_t whole, int64_t part);

// Returns the step's name in a job, such as "random_crop".
const char* NameOf(const Transform& step);
bool IsRandom(const Transform& step);

// Returns true if MixUp accepts this alpha: from 1e-6 to 1e6.
bool IsMixUpAlpha(double alpha);

}  // namespace muster::data
