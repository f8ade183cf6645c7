// The losses of muster/losses.h by name, for a program that is not written in C++.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

struct Loss {
  // Outputs and targets of one batch to losses of shape [batch]; where Weights() are defined, to
  // one of each of them. Throws c10::Error on shapes that cannot be right.
  std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)> values;
  // Class numbers that do not count, such as those of padding: neither in the loss nor in its mean
  // nor in the metrics.
  std::optional<int64_t> ignore_index;
  int64_t class_dim = -1;

  // 1 for each class number that counts and 0 for the others; undefined where the target has none:
  // examples count alike then.
  at::Tensor Weights(const at::Tensor& target) const;
};

// `json` is the name of one of muster/losses.h, or an object with "name" and the loss's own keys
// (docs/exported.md has the list). cross_entropy has the classes in the last dimension unless its
// "class_dim" says otherwise; outputs [batch, 1] go with targets [batch]. `place` is the key for
// messages.
absl::StatusOr<Loss> MakeLoss(const Json& json, const std::string& place);

}  // namespace muster::exported
