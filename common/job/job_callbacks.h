// Handles the entries of the job's "callbacks" that configure the job itself.
#pragma once

#include "common/job/job.h"

namespace muster {

// Checks that "callbacks" is a list of objects with names. The other checks depend on the program
// (common/train/callbacks/callbacks.h).
absl::Status CheckCallbackNames(const Json& callbacks);

// Sets options of the job from its callbacks. "tensorboard" and "backup_and_restore" name features
// that are always on, so their keys only set options in "summary" and "checkpoint". The first
// "model_checkpoint" with a "monitor" sets the metric of the best checkpoint. REQUIRES:
// CheckCallbackNames returned OK.
absl::Status ApplyCallbacks(Job* job);

}  // namespace muster
