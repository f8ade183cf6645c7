// Applies the entries of the job's "callbacks" that configure the job itself.
#pragma once

#include "common/job/job.h"

namespace muster {

// Checks that each entry of `callbacks` is an object with a name.
// common/train/callbacks/callbacks.h has the other checks, which depend on the program.
absl::Status CheckCallbackNames(const Json& callbacks);

// Sets options of the job from the entries of job->callbacks. The keys of "tensorboard" set
// job->summary, and the keys of "backup_and_restore" set job->checkpoint. Summaries and checkpoints
// are on even without these entries. The first "model_checkpoint" with a "monitor" sets the metric
// of the best checkpoint. REQUIRES: CheckCallbackNames returned OK.
absl::Status ApplyCallbacks(Job* job);

}  // namespace muster
