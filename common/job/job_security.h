// Loads a job file. If the job file is invalid, loads only its security options. With these
// options, the task can report the error to the chief.
#pragma once

#include <string>
#include <vector>

#include "common/job/job.h"
#include "muster/status.h"

namespace muster {

// Like LoadJob, with the result in `*job`. After an error, `*job` has the readable values of
// folder, security.key_file, security.insecure and the paths of tls, and default values otherwise.
absl::Status LoadJobOrSecurity(const std::string& path, const std::vector<std::string>& overrides,
                               Job* job);

}  // namespace muster
