// What `muster predict` predicts from: .npy files, which go through the conversions that the job
// makes of its own data.
#pragma once

#include <string>

#include "common/data/formats.h"
#include "common/train/job.h"

namespace muster {

// `path` is an .npy file, the first column of a batch, or a folder of them, one for each column.
// They are converted (dtype, scale, shape) as the columns of the same names in the job's test data,
// or where it names none, validation or training data; those are in that order, others in the order
// of the alphabet. ConfigurationErrors say what is not there or of another shape, DataErrors what
// is damaged.
absl::StatusOr<data::OpenSplit> OpenInput(const Job& job, const std::string& path);

}  // namespace muster
