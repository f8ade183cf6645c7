// The parts of reading a job file that know nothing of how its keys are stored: ranges, --set, and
// the comparison of two jobs. Internal to the library `job`.
#pragma once

#include <string>
#include <vector>

#include "common/base/ordered_json.h"
#include "muster/status.h"

namespace muster {

struct Job;

// Ranges, and keys that exclude each other. The error names the key, its value and what is allowed.
absl::Status CheckJob(const Job& job);
// Of a job whose strategy is known: whether it can be `deterministic`.
absl::Status CheckDeterministic(const Job& job);
// Refuses parameter servers that would train synchronously. REQUIRES: that is the strategy. (Jobs
// of runs from before, which LoadJob reads, may have it.)
absl::Status CheckMaxStaleness(const Job& job);
// Of a job on a cluster with so many members (chief and workers).
absl::Status CheckMembers(const Job& job, int members);

// Sets one dotted key, "checkpoint.keep=5", in a job that was read but not yet checked.
absl::Status ApplyOverride(const std::string& assignment, OrderedJson* job);

}  // namespace muster
