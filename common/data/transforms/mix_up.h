// MixUp for the columns of a job. Internal to common/data.
#pragma once

#include <vector>

#include "muster/data.h"
#include "muster/transform_steps.h"

namespace muster::data {

struct MixUpColumns {
  std::vector<size_t> pictures;  // The components with float32 pictures.
  size_t labels = 1;             // The component with integer labels of shape [].
};

// Applies MixUp to several columns, as muster/transforms.h describes. REQUIRES: the options are
// valid.
DatasetPtr MixUpOf(DatasetPtr input, const MixUpColumns& columns, const MixUpOptions& options);

}  // namespace muster::data
