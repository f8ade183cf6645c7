// Augmentation of images, for data::Map. Random numbers are a function of (seed, epoch, index)
// only. The augmentation of an image is therefore the same after a restart and for any number of
// threads, processes and replicas. The index is the one that Map receives, so apply Map before
// Shuffle.
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
// component is an image, uint8 [channels, height, width] with 1 or 3 channels. The result is uint8,
// or float32 after Normalize. Throws std::invalid_argument if the steps are invalid. The returned
// function throws std::invalid_argument if an image is smaller than a crop.
MapFunction TransformPictures(std::vector<Transform> steps, size_t component = 0);

// Mixes each example with the previous one in the epoch's order (the first with the last), as
// torchvision's MixUp does within a batch. Apply MixUp after Shuffle. Each example has its own
// lambda. Component 0 is a floating-point image. Component 1 is an integer label [], which becomes
// float32 [classes]. The number of replicas does not change which examples are mixed. Each batch
// reads one extra example, the one before its first. If the previous example is damaged, an example
// is not mixed. REQUIRES: input is not null, alpha is above 0, classes is positive. Otherwise
// throws std::invalid_argument.
DatasetPtr MixUp(DatasetPtr input, const MixUpOptions& options);

}  // namespace muster::data
