// Reads the input of `muster predict` from .npy files, and converts the input in the same way as
// the job's data. A column is a named component of a batch, such as "x" (docs/data.md).
#pragma once

#include <string>

#include "common/data/job/formats.h"
#include "common/job/job.h"

namespace muster {

// Opens the input at `path`: one .npy file, or a folder with one .npy file per column. One file is
// the first column that is not "target". Converts the dtype, scale and shape of a column like those
// of the column with the same name in one split of the job's data. This split is the first of test,
// validation and training that the job has. The columns keep the order of this split, or have
// alphabetical order if the job has no data. Returns ConfigurationError for missing files, wrong
// shapes and unknown columns. Returns DataError for damaged files.
absl::StatusOr<data::OpenSplit> OpenInput(const Job& job, const std::string& path);

}  // namespace muster
