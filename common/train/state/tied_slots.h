// Slots of tied weights in checkpoints. A parameter with several names has its slots under the
// first name. Earlier versions of Muster wrote one set of slots under each name: synchronous
// training updated the last set, and parameter servers the first.
#pragma once

#include "common/checkpoint/tensor.h"
#include "common/train/replica/replica.h"

namespace muster {

// Returns the tensors of `slots` with one set for each parameter: the set that was updated, under
// the first name. The result refers to the memory of `slots`.
checkpoint::TensorSet UntieSlots(const checkpoint::TensorSet& slots, const Replica& replica);

}  // namespace muster
