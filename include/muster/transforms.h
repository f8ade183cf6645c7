// Augmentation of images, for Map. Random numbers are a function of (seed, epoch, index) only. An
// image is therefore augmented alike after a restart and for any number of threads, processes and
// replicas. The index is the one that Map receives, so put Map below Shuffle.
//
//   DatasetPtr train = Map(files, TransformPictures({RandomCrop{.height = 32, .width = 32,
//                                                               .padding = {4, 4, 4, 4}},
//                                                    RandomHorizontalFlip{}, NormalizeTo(-1, 1)}));
//   train = MixUp(Shuffle(train), {.alpha = 0.2, .classes = 10});
#pragma once

#include "muster/data.h"
#include "muster/transform_steps.h"

namespace muster::data {

// Returns a function that applies the steps, in order, to one component of an example. The
// component is an image, uint8 [channels, height, width] with 1 or 3 channels. The result has the
// same form, or is float32 after Normalize. Invalid steps throw std::invalid_argument here. An
// image smaller than a crop throws it when the function is applied.
MapFunction TransformPictures(std::vector<Transform> steps, size_t component = 0);

// Mixes each example with the previous one in the epoch's order (the first with the last), as
// torchvision's MixUp does within a batch. Put it above Shuffle. Lambda differs for each example.
// Component 0 is a floating-point image. Component 1 is an integer label [], which becomes float32
// [classes]. The partner of an example does not depend on the number of replicas. Each batch reads
// one extra example. If that one is damaged, the example after it is not mixed. REQUIRES: input is
// not null, alpha is above 0, classes is positive. Otherwise throws std::invalid_argument.
DatasetPtr MixUp(DatasetPtr input, const MixUpOptions& options);

}  // namespace muster::data
