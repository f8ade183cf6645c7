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

// Returns the pixels of a picture tensor, uint8 [channels, height, width], without a copy. The
// tensor must have the memory layout of decoders: the channels of a pixel are adjacent. Returns
// nullopt for another layout or type.
std::optional<PixelRows> RowsOf(const at::Tensor& picture);

// Applies a list of transforms. Immutable. To save passes over memory, Apply flips and normalizes
// pixels while it copies them to planes.
class PictureSteps {
 public:
  // REQUIRES: FindWrongStep(steps) returns nullopt.
  explicit PictureSteps(std::vector<Transform> steps) : steps_(std::move(steps)) {}

  at::ScalarType type() const;  // Returns the type of the result.

  // Applies the steps to `picture`, uint8 [1 or 3, height, width] in any memory layout. Does not
  // change `picture`. If *out is contiguous and has the result's type and shape, writes the result
  // into *out. Otherwise, sets *out to a new tensor. Returns the step for which the picture is too
  // small, or nullopt. Throws LibTorch's exceptions.
  std::optional<WrongStep> Apply(const at::Tensor& picture, RandomNumbers random,
                                 at::Tensor* out) const;

 private:
  std::vector<Transform> steps_;
};

}  // namespace muster::data
