// Whether a run has come to its end, as far as files say that are read in no time: result.json and
// job.json of a model_dir. What a start of the job does is the chief's to decide (chief/resume.h).
#pragma once

#include <cstdint>
#include <string>

#include "common/train/job.h"

namespace muster {

// Whether a job is finished after so many steps, and epochs.
bool TrainedToItsEnd(const Job& job, int64_t steps, int64_t epochs);
// `job` trains further than `before` did.
bool TrainsFurther(const Job& job, const Job& before);

// A sentence where model_dir says that this job was trained to its end; "" where it does not, or
// cannot be read.
std::string FinishedRun(const Job& job);

}  // namespace muster
