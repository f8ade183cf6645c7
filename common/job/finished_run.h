// Decides whether a run is finished, from the files result.json and job.json of its model_dir. The
// chief uses these functions to decide how a job starts (chief/model_dir/resume.h). Other tasks use
// FinishedRun to decide whether to wait for the chief (common/membership/late_start.h).
#pragma once

#include <cstdint>
#include <string>

#include "common/job/job.h"

namespace muster {

// Returns whether `job` is finished after `steps` steps and `epochs` epochs.
bool TrainedToItsEnd(const Job& job, int64_t steps, int64_t epochs);
// Returns whether `job` trains for more steps or epochs than `before`.
bool TrainsFurther(const Job& job, const Job& before);

// Returns a sentence for the log if this job was trained to its end, according to the files in
// job.model_dir. Otherwise returns "". Also returns "" if a file cannot be read, or if job.restore
// is "never".
std::string FinishedRun(const Job& job);

}  // namespace muster
