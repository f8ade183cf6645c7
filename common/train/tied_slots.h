// Slots of tied weights in checkpoints. A parameter of several names has its slots under the first
// one. Muster wrote a set under each name before: synchronous training kept the last one up to
// date, parameter servers the first.
#pragma once

#include "common/checkpoint/tensor.h"
#include "common/train/replica.h"

namespace muster {

// The optimizers' tensors of a checkpoint without those sets but the one that was up to date, which
// gets the first name. Points into `slots`.
checkpoint::TensorSet UntieSlots(const checkpoint::TensorSet& slots, const Replica& replica);

}  // namespace muster
