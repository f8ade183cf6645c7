// MixUp of the columns that a job has. Internal to common/data.
#pragma once

#include <vector>

#include "muster/data.h"
#include "muster/transform_steps.h"

namespace muster::data {

struct MixUpColumns {
  std::vector<size_t> pictures;  // float32
  size_t labels = 1;             // integers, []
};

// As MixUp of muster/transforms.h. REQUIRES: the options make sense.
DatasetPtr MixUpOf(DatasetPtr input, const MixUpColumns& columns, const MixUpOptions& options);

}  // namespace muster::data
