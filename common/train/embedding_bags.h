// Bags of keys, and their rows pooled into one row each. Whatever throws, throws StatusError.
// Internal to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "common/train/replica.h"
#include "muster/step.h"

namespace muster {

// `lookup` gives the rows of each element's keys, [keys][width] on the replica's device; it is
// called once. [bags, width] of each element of `bags`, differentiable by rows and weights.
std::vector<at::Tensor> LookupBags(
    const Replica& replica, const std::vector<TableBags>& bags,
    const std::function<std::vector<at::Tensor>(const std::vector<TableKeys>&)>& lookup);

}  // namespace muster
