// Reads the input of `muster predict` from .npy files, and converts it in the same way as the job's
// data.
#pragma once

#include <string>

#include "common/data/job/formats.h"
#include "common/job/job.h"

namespace muster {

// Opens the input at `path`: an .npy file with the first column of a batch, or a folder with one
// file per column. Converts each column (dtype, scale, shape) like the column of the same name in
// the job's test data or, without test data, in its validation or training data. The columns have
// the order of that data, or alphabetical order if the job has no data. Returns ConfigurationError
// for missing files, wrong shapes and columns that the job's data does not have. Returns DataError
// for damaged files.
absl::StatusOr<data::OpenSplit> OpenInput(const Job& job, const std::string& path);

}  // namespace muster
