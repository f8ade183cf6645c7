// Loads a job file, or at least its security options. A task whose job file is invalid needs these
// options to report the error to the chief.
#pragma once

#include <string>
#include <vector>

#include "common/job/job.h"
#include "muster/status.h"

namespace muster {

// As LoadJob, with the result in `*job`. On an error, `*job` has the keys `security`, `tls` and
// `folder` as far as they can be read. All other keys then have their default values.
absl::Status LoadJobOrSecurity(const std::string& path, const std::vector<std::string>& overrides,
                               Job* job);

}  // namespace muster
