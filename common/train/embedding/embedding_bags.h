// Looks up bags of keys in embedding tables. A bag is a list of keys whose rows are pooled into one
// row by sum or mean, as in torch.nn.EmbeddingBag. Internal to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "common/train/replica/replica.h"
#include "muster/step.h"

namespace muster {

// Returns one tensor for each element of `bags`. The shape is [n, width], where n is the number of
// bags in the element. Autograd computes gradients for the looked-up rows and for the weights of
// the bags. Throws StatusError.
//
// Calls `lookup` once, with the keys of all bags. For each element of its argument, `lookup`
// returns the rows of the element's keys: a tensor [keys, width] on the replica's device.
std::vector<at::Tensor> LookupBags(
    const Replica& replica, const std::vector<TableBags>& bags,
    const std::function<std::vector<at::Tensor>(const std::vector<TableKeys>&)>& lookup);

}  // namespace muster
