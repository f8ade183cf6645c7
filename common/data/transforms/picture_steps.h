// Applies transforms to pictures. Internal to common/data.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "common/data/image/pixels.h"
#include "common/data/random_numbers.h"
#include "common/data/transforms/transform_check.h"
#include "muster/transform_steps.h"

namespace muster::data {

// Returns the pixels of a picture [channels, height, width] whose channels are adjacent in memory,
// as decoders leave them. Returns nullopt for another layout or type.
std::optional<PixelRows> RowsOf(const at::Tensor& picture);

// Immutable. Combines steps: flips and normalisation run during the copy that turns pixels into
// planes.
class PictureSteps {
 public:
  // REQUIRES: FindWrongStep finds none.
  explicit PictureSteps(std::vector<Transform> steps) : steps_(std::move(steps)) {}

  at::ScalarType type() const;  // Type of the result.

  // Applies the steps to `picture`, uint8 [1 or 3, height, width] in any layout, without writing to
  // it. The dense result goes into *out where that has its type and shape, else into a new tensor.
  // Returns the step for which the picture is too small. Throws LibTorch's exceptions.
  std::optional<WrongStep> Apply(const at::Tensor& picture, RandomNumbers random,
                                 at::Tensor* out) const;

 private:
  std::vector<Transform> steps_;
};

}  // namespace muster::data
