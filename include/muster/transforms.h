// Augmentation of images, for data::Map. The random numbers depend only on the job's seed, the
// epoch and the index of the example. The augmentation of an image is therefore the same after a
// restart and for any number of threads, processes and replicas (devices). Apply Map before
// Shuffle, so that the index of an image is the same in every epoch.
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
// component is an image, uint8 [channels, height, width] with 1 or 3 channels. The resulting image
// is uint8, or float32 if the last step is Normalize. Throws std::invalid_argument if the steps are
// invalid. The returned function throws std::invalid_argument if an image is too small for a
// CenterCrop or RandomCrop.
MapFunction TransformPictures(std::vector<Transform> steps, size_t component = 0);

// Mixes each example with the previous example in the order of the epoch. The first example of the
// epoch is mixed with the last example. torchvision's MixUp does the same within a batch. Apply
// MixUp after Shuffle. Each example has its own lambda. Component 0 is a floating-point image.
// Component 1 is an integer label of shape [], which becomes float32 [classes]. The number of
// replicas does not change the mixing. Each batch reads one extra example: the example before the
// batch's first example. An example stays unmixed if the previous example is damaged. Throws
// std::invalid_argument if `input` is null, `alpha` is not above 0, or `classes` is not positive.
DatasetPtr MixUp(DatasetPtr input, const MixUpOptions& options);

}  // namespace muster::data
