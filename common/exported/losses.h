// Makes a loss of muster/losses.h from the job's "program.loss", for exported programs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

struct Loss {
  // Computes the losses of one batch. If Weights(target) is defined, the result has the shape of
  // `target`: one loss for each class number in `target`. Otherwise the result has the shape
  // [batch]. Throws c10::Error if the shapes of `output` and `target` do not match.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> values;
  // A class number that the loss and the metrics ignore. An example is the class number of
  // padding.
  std::optional<int64_t> ignore_index;
  int64_t class_dim = -1;  // The dimension of the classes in the output.

  // Returns a tensor with the shape of `target`: false for ignore_index, and true for all other
  // class numbers. Returns an undefined tensor if there is no ignore_index, or if `target` has
  // floating-point numbers.
  at::Tensor Weights(const at::Tensor& target) const;
};

// Makes the loss that `json` describes. `json` is the loss's name, or an object with "name" and the
// keys of the loss (docs/exported.md). `place` is the dotted job key of `json`, for messages. For
// cross_entropy, the key "class_dim" gives the dimension of the classes, -1 by default. All other
// losses accept outputs of shape [batch, 1] with targets of shape [batch].
absl::StatusOr<Loss> MakeLoss(const Json& json, const std::string& place);

}  // namespace muster::exported
