// Checks transforms without a picture: whether their arguments are valid, and the size of their
// results. Needs no LibTorch. Internal to common/data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "muster/transform_steps.h"

namespace muster::data {

struct WrongStep {
  size_t step = 0;
  std::string key;   // Of the argument, as a job names it. "": the step itself.
  std::string what;  // Such as "must be ..., is ...".
};

// Returns the first step that is invalid by itself or at its position.
std::optional<WrongStep> FindWrongStep(const std::vector<Transform>& steps);

// The size of a picture. 0 where it is unknown.
struct PictureSize {
  int64_t height = 0, width = 0;
  int64_t shorter_side = 0;  // Set where only this is known.
};
// Sets *size to the size after the steps. Returns the step for which pictures of this size are too
// small, or which makes more than kMaxPixels.
std::optional<WrongStep> FindTooLarge(const std::vector<Transform>& steps, PictureSize* size);

// Returns the size after a Resize. REQUIRES: the size is known.
PictureSize Resized(const Resize& resize, int64_t height, int64_t width);
// Returns the error of a resize to more than kMaxPixels, or "".
std::string TooManyPixels(const PictureSize& from, const PictureSize& to);
// Returns the margin on one side of a centred part. Rounds halves as Python does, like torchvision.
int64_t Margin(int64_t whole, int64_t part);

// Returns the name in a job, such as "random_crop".
const char* NameOf(const Transform& step);
bool IsRandom(const Transform& step);

// True where mixup accepts it: from 1e-6 to 1e6.
bool IsMixUpAlpha(double alpha);

}  // namespace muster::data
