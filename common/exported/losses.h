// The losses of muster/losses.h by name, for a program that is not written in C++.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::exported {

// Outputs and targets of one batch to losses of shape [batch]. Throws c10::Error on shapes that
// cannot be right.
using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

// `json` is the name of one of muster/losses.h, or an object with "name" and the loss's own keys
// (docs/exported.md has the list). cross_entropy has the classes in the last dimension unless its
// "class_dim" says otherwise; outputs [batch, 1] go with targets [batch]. `place` is the key for
// messages.
absl::StatusOr<Loss> MakeLoss(const Json& json, const std::string& place);

}  // namespace muster::exported
