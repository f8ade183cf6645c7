// Loads a job file. If the job file is invalid, loads only its security options. The task needs
// these options to report the error to the chief.
#pragma once

#include <string>
#include <vector>

#include "common/job/job.h"
#include "muster/status.h"

namespace muster {

// Like LoadJob, with the result in `*job`. After an error, `*job` has those values of the keys
// `security`, `tls` and `folder` that can be read, and default values for all other keys.
absl::Status LoadJobOrSecurity(const std::string& path, const std::vector<std::string>& overrides,
                               Job* job);

}  // namespace muster
