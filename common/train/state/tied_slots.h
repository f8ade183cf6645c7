// Reads the slots of tied weights in checkpoints. Slots are the state that an optimizer has for
// each parameter. A parameter with several names (tied weights) has its slots under the first name.
//
// Checkpoints of earlier versions of Muster have one set of slots under each name. Only one of
// these sets was updated. Synchronous training updated the set under the last name. Parameter
// servers updated the set under the first name.
#pragma once

#include "common/checkpoint/tensor.h"
#include "common/train/replica/replica.h"

namespace muster {

// Returns the tensors of `slots` with one set for each parameter, under its first name. If `slots`
// has several sets for a parameter, the result has the set that was updated. The result refers to
// the memory of `slots`.
checkpoint::TensorSet UntieSlots(const checkpoint::TensorSet& slots, const Replica& replica);

}  // namespace muster
