// A job file that is refused still says how its task proves to the chief who it is, so that the
// chief hears of the refusal.
#pragma once

#include <string>
#include <vector>

#include "common/job/job.h"
#include "muster/status.h"

namespace muster {

// LoadJob. Where that fails, `job` has the keys `security`, `tls` and `folder` as far as they can
// be read, and is else as by default.
absl::Status LoadJobOrSecurity(const std::string& path, const std::vector<std::string>& overrides,
                               Job* job);

}  // namespace muster
