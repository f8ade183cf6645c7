// Applies transforms to pictures. Internal to common/data.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "common/data/image/pixels.h"
#include "common/data/random_numbers.h"
#include "common/data/transform_check.h"
#include "muster/transform_steps.h"

namespace muster::data {

// The pixels of a picture, [channels, height, width], where the channels of each lie side by side,
// as decoders leave them; nullopt where they do not, or are no bytes.
std::optional<PixelRows> RowsOf(const at::Tensor& picture);

// Immutable. Work that later steps allow is done once: a flip goes with the copy that turns pixels
// into planes, and so does normalising.
class PictureSteps {
 public:
  // REQUIRES: FindWrongStep finds none.
  explicit PictureSteps(std::vector<Transform> steps) : steps_(std::move(steps)) {}

  at::ScalarType type() const;  // of what comes out

  // `picture` is uint8 [1 or 3, height, width] in any layout, and is not written to. What comes out
  // is dense; it goes into *out where that has its type and shape, else a new tensor goes there.
  // Returns the step that the picture is too small for. Exceptions are LibTorch's.
  std::optional<WrongStep> Apply(const at::Tensor& picture, RandomNumbers random,
                                 at::Tensor* out) const;

 private:
  std::vector<Transform> steps_;
};

}  // namespace muster::data
