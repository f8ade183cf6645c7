// Makes losses of muster/losses.h by name, for exported programs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

struct Loss {
  // Computes losses of shape [batch] from the outputs and targets of one batch. If Weights()
  // returns a defined tensor, computes one loss for each weight. Throws c10::Error if shapes are
  // invalid.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> values;
  // The class number that loss, mean and metrics ignore, such as the one for padding.
  std::optional<int64_t> ignore_index;
  int64_t class_dim = -1;

  // Returns 0 for each ignored class number and 1 for all others. Returns an undefined tensor if
  // there is no ignore_index.
  at::Tensor Weights(const at::Tensor& target) const;
};

// `json` is the name of a loss of muster/losses.h, or an object with "name" and the keys of that
// loss (docs/exported.md). For cross_entropy, the classes are in the last dimension, or in the
// dimension "class_dim". Outputs [batch, 1] match targets [batch]. `place` is the dotted key for
// messages.
absl::StatusOr<Loss> MakeLoss(const Json& json, const std::string& place);

}  // namespace muster::exported
