// Checks of a job after it was read, and the --set option. Internal to common/job, except that the
// roles call the checks that need the strategy or the cluster.
#pragma once

#include <string>
#include <vector>

#include "common/base/json/ordered_json.h"
#include "muster/status.h"

namespace muster {

struct Job;

// Checks the ranges of values and mutually exclusive keys. The error names the key, its value and
// the allowed values.
absl::Status CheckJob(const Job& job);
// Returns an error if `deterministic` is set and job.strategy does not support it. REQUIRES:
// job.strategy is resolved (StrategyFor).
absl::Status CheckDeterministic(const Job& job);
// Returns an error if the job asks for synchronous training with parameter servers. LoadJob accepts
// such jobs, because the model_dirs of earlier runs contain them. REQUIRES: the strategy is
// parameter_server.
absl::Status CheckMaxStaleness(const Job& job);
// Checks the job against the number of members (chief and workers) of the cluster.
absl::Status CheckMembers(const Job& job, int members);

// Sets one dotted key of a job file's JSON. `assignment` is the value of --set, for example
// "checkpoint.keep=5".
absl::Status ApplyOverride(const std::string& assignment, OrderedJson* job);

}  // namespace muster
