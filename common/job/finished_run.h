// Determines whether a run is finished, from two small files of a model_dir: result.json and
// job.json. The chief decides what a start of the job does (chief/model_dir/resume.h).
#pragma once

#include <cstdint>
#include <string>

#include "common/job/job.h"

namespace muster {

// Returns whether a job is finished after this many steps and epochs.
bool TrainedToItsEnd(const Job& job, int64_t steps, int64_t epochs);
// Returns whether `job` trains further than `before` did.
bool TrainsFurther(const Job& job, const Job& before);

// Returns a sentence if model_dir shows that this job was trained to its end. Returns "" if it does
// not, or cannot be read.
std::string FinishedRun(const Job& job);

}  // namespace muster
