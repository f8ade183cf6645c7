// Bags of keys, whose rows are pooled into one row for each bag. Functions throw StatusError.
// Internal to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "common/train/replica/replica.h"
#include "muster/step.h"

namespace muster {

// Returns [bags, width] for each element of `bags`, differentiable by rows and weights. Calls
// `lookup` once, which returns the rows of each element's keys, [keys][width], on the replica's
// device.
std::vector<at::Tensor> LookupBags(
    const Replica& replica, const std::vector<TableBags>& bags,
    const std::function<std::vector<at::Tensor>(const std::vector<TableKeys>&)>& lookup);

}  // namespace muster
