// The parts of reading a job file that do not depend on how its keys are stored: ranges, --set, and
// the comparison of two jobs. Internal to the library `job`.
#pragma once

#include <string>
#include <vector>

#include "common/base/json/ordered_json.h"
#include "muster/status.h"

namespace muster {

struct Job;

// Checks ranges and mutually exclusive keys. The error names the key, its value and the allowed
// values.
absl::Status CheckJob(const Job& job);
// Checks whether a job with a known strategy can be `deterministic`.
absl::Status CheckDeterministic(const Job& job);
// Refuses parameter servers with synchronous training. Requires strategy parameter_server. LoadJob
// accepts such jobs, because earlier runs have them.
absl::Status CheckMaxStaleness(const Job& job);
// Checks the job against a cluster with this many members (chief and workers).
absl::Status CheckMembers(const Job& job, int members);

// Sets one dotted key, as in "checkpoint.keep=5", in a job that was read but not yet checked.
absl::Status ApplyOverride(const std::string& assignment, OrderedJson* job);

}  // namespace muster
