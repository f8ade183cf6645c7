// Augmentation of pictures, for Map. Random numbers are a function of (seed, epoch, index) alone,
// so that a picture comes out the same after a restart and for any number of threads, processes and
// replicas; the index is the Map's, so put it below Shuffle.
//
//   DatasetPtr train = Map(files, TransformPictures({RandomCrop{.height = 32, .width = 32,
//                                                               .padding = {4, 4, 4, 4}},
//                                                    RandomHorizontalFlip{}, NormalizeTo(-1, 1)}));
//   train = MixUp(Shuffle(train), {.alpha = 0.2, .classes = 10});
#pragma once

#include "muster/data.h"
#include "muster/transform_steps.h"

namespace muster::data {

// A function that applies the steps, in order, to component `component` of an example: a picture,
// uint8 [channels, height, width] with 1 or 3 channels. What comes out is that too, or after
// Normalize float32. Steps that make no sense are a std::invalid_argument, here; a picture that is
// smaller than a crop, where it occurs.
MapFunction TransformPictures(std::vector<Transform> steps, size_t component = 0);

// Mixes each example with the one before it in the epoch's order (the first with the last), as
// torchvision's MixUp does within a batch, so put it above Shuffle; lambda is another one for each
// example. Component 0 is floating-point pictures, component 1 integer labels [], which become
// float32 [classes]. An example is mixed with the same other one whatever the number of replicas. A
// batch reads one example more than it has; where that one is damaged, the example after it stays
// unmixed. REQUIRES: input is not null, alpha is above 0, classes
// is positive; otherwise std::invalid_argument.
DatasetPtr MixUp(DatasetPtr input, const MixUpOptions& options);

}  // namespace muster::data
