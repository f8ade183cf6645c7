// Slots of tied weights in checkpoints. A parameter with several names has its slots under the
// first one. Earlier versions of Muster wrote a set under each name. Synchronous training updated
// the last set, parameter servers the first.
#pragma once

#include "common/checkpoint/tensor.h"
#include "common/train/replica/replica.h"

namespace muster {

// Returns the optimizers' tensors of a checkpoint with one set for each parameter: the one that was
// updated, under the first name. Points into `slots`.
checkpoint::TensorSet UntieSlots(const checkpoint::TensorSet& slots, const Replica& replica);

}  // namespace muster
