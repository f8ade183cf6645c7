// Reads the input of `muster predict` from .npy files, and converts the input in the same way as
// the job's data. A column is a component of a batch with a name, such as "x" (docs/data.md).
#pragma once

#include <string>

#include "common/data/job/formats.h"
#include "common/job/job.h"

namespace muster {

// Opens the input at `path`. This is an .npy file with the first column of a batch, or a folder
// with one .npy file per column. Converts the dtype, scale and shape of each column like those of
// the column with the same name in the job's data. The first of these splits that the job has
// decides: test, validation, training. The columns have the order of this split, or alphabetical
// order if the job has no data. Returns ConfigurationError for missing files, wrong shapes and
// unknown columns. Returns DataError for damaged files.
absl::StatusOr<data::OpenSplit> OpenInput(const Job& job, const std::string& path);

}  // namespace muster
