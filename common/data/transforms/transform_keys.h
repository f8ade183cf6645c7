// Reads the "transforms" of a split (training, validation or test data) of a job. Internal to
// common/data.
#pragma once

#include "common/data/job/job_data.h"
#include "muster/json.h"

namespace muster::data {

// Reads and checks the transforms. REQUIRES: the columns and picture options of `split` are already
// read.
absl::Status ReadTransforms(JsonObject* object, Split which, DataSplit* split);

}  // namespace muster::data
