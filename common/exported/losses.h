// The losses of muster/losses.h by name, for programs without C++.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

struct Loss {
  // Computes losses of shape [batch] from the outputs and targets of one batch. Where Weights() is
  // defined, it computes one loss for each weight. Throws c10::Error on invalid shapes.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> values;
  // Class number that does not count, such as that of padding: not in the loss, its mean or the
  // metrics.
  std::optional<int64_t> ignore_index;
  int64_t class_dim = -1;

  // Returns 1 for each class number that counts and 0 for the others. Undefined where all examples
  // count equally.
  at::Tensor Weights(const at::Tensor& target) const;
};

// `json` is the name of a loss of muster/losses.h, or an object with "name" and the keys of that
// loss (listed in docs/exported.md). The loss cross_entropy has the classes in the last dimension
// unless "class_dim" says otherwise. Outputs [batch, 1] match targets [batch]. `place` is the key
// for messages.
absl::StatusOr<Loss> MakeLoss(const Json& json, const std::string& place);

}  // namespace muster::exported
