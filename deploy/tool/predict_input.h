// Reads the input of `muster predict` from .npy files, and converts it in the same way as the job's
// data.
#pragma once

#include <string>

#include "common/data/job/formats.h"
#include "common/job/job.h"

namespace muster {

// `path` is an .npy file with the first column of a batch, or a folder with one file per column.
// Each column is converted (dtype, scale, shape) like the column of the same name in the job's test
// data. Without test data, the validation or the training data is used. The columns have the order
// of that data. Further columns follow in alphabetical order. Returns ConfigurationError for
// missing files and wrong shapes, DataError for damaged files.
absl::StatusOr<data::OpenSplit> OpenInput(const Job& job, const std::string& path);

}  // namespace muster
