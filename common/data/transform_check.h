// What can be said of transforms without a picture: whether their arguments make sense, and what
// size comes out of them. Needs no LibTorch. Internal to common/data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "muster/transform_steps.h"

namespace muster::data {

struct WrongStep {
  size_t step = 0;
  std::string key;   // of the argument, as a job names it; "": the step itself
  std::string what;  // "must be ..., is ..."
};

// The first step that is wrong by itself, or where it stands.
std::optional<WrongStep> FindWrongStep(const std::vector<Transform>& steps);

// Of a picture; 0 where it is not known.
struct PictureSize {
  int64_t height = 0, width = 0;
  int64_t shorter_side = 0;  // where that is all that is known
};
// *size after the steps, or the step that pictures of this size are too small for, or that makes
// more than kMaxPixels of them.
std::optional<WrongStep> FindTooLarge(const std::vector<Transform>& steps, PictureSize* size);

// What a Resize makes of a picture's size. REQUIRES: that is known.
PictureSize Resized(const Resize& resize, int64_t height, int64_t width);
// What is wrong with a resize of pictures of this size to that one: more than kMaxPixels; "":
// nothing.
std::string TooManyPixels(const PictureSize& from, const PictureSize& to);
// The margin on one side of a part in the middle; Python's round of a half, as torchvision computes
// it.
int64_t Margin(int64_t whole, int64_t part);

// As a job names it: "random_crop".
const char* NameOf(const Transform& step);
bool IsRandom(const Transform& step);

// Whether mixup takes it: from 1e-6 to 1e6.
bool IsMixUpAlpha(double alpha);

}  // namespace muster::data
