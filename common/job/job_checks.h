// Checks of a job that was read from a file, and the --set option. CheckJob and ApplyOverride are
// internal to common/job. The roles (chief, worker, ps) call the other functions as soon as they
// know the strategy and the cluster.
#pragma once

#include <string>
#include <vector>

#include "common/base/json/ordered_json.h"
#include "muster/status.h"

namespace muster {

struct Job;

// Checks that values are in their ranges, and that the job has no two keys that exclude each other.
// The error names the key, its value and the allowed values.
absl::Status CheckJob(const Job& job);
// Returns an error if `deterministic` is set and job.strategy does not support it. REQUIRES:
// job.strategy is resolved (StrategyFor).
absl::Status CheckDeterministic(const Job& job);
// Returns an error if parameter_server.max_staleness is 0, which means synchronous training.
// LoadJob accepts the value 0, because the job.json of an old run may contain it. REQUIRES: the
// strategy is parameter_server.
absl::Status CheckMaxStaleness(const Job& job);
// Checks elastic.spares and elastic.min_workers against `members`, the number of members (chief and
// workers) of the cluster.
absl::Status CheckMembers(const Job& job, int members);

// Sets one dotted key in `job`, the JSON of a job file. `assignment` is the argument of --set, such
// as "checkpoint.keep=5".
absl::Status ApplyOverride(const std::string& assignment, OrderedJson* job);

}  // namespace muster
