// Finds out from result.json and job.json of a model_dir whether its run is finished. The chief
// uses this when it decides what a start of the job does (chief/model_dir/resume.h).
#pragma once

#include <cstdint>
#include <string>

#include "common/job/job.h"

namespace muster {

// Returns whether a job is finished after `steps` steps and `epochs` epochs.
bool TrainedToItsEnd(const Job& job, int64_t steps, int64_t epochs);
// Returns whether `job` trains for more steps or epochs than `before`.
bool TrainsFurther(const Job& job, const Job& before);

// Returns a sentence if the files in model_dir show that this job was trained to its end. Returns
// "" otherwise, or if the files cannot be read.
std::string FinishedRun(const Job& job);

}  // namespace muster
