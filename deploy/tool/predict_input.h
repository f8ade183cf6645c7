// The input of `muster predict`: .npy files, converted in the same way as the job's own data.
#pragma once

#include <string>

#include "common/data/job/formats.h"
#include "common/job/job.h"

namespace muster {

// `path` is an .npy file, the first column of a batch, or a folder with one file per column.
// Columns are converted (dtype, scale, shape) like the columns of the same name in the job's test
// data. If the job has none, its validation or training data is used. Those columns keep that
// order, and other columns follow in alphabetical order. Returns ConfigurationErrors for missing
// files and wrong shapes, DataErrors for damaged files.
absl::StatusOr<data::OpenSplit> OpenInput(const Job& job, const std::string& path);

}  // namespace muster
