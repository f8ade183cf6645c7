// Looks up bags of keys. A bag is a list of keys whose rows are pooled into one row, as in
// torch.nn.EmbeddingBag. Internal to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "common/train/replica/replica.h"
#include "muster/step.h"

namespace muster {

// Returns a tensor [bags, width] for each element of `bags`. Autograd differentiates it by rows and
// weights. Calls `lookup` once for all keys. `lookup` returns a tensor [keys, width] for each
// element, on the replica's device. Throws StatusError.
std::vector<at::Tensor> LookupBags(
    const Replica& replica, const std::vector<TableBags>& bags,
    const std::function<std::vector<at::Tensor>(const std::vector<TableKeys>&)>& lookup);

}  // namespace muster
