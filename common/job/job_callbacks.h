// The parts of the job's "callbacks" that configure the job itself.
#pragma once

#include "common/job/job.h"

namespace muster {

// Checks that "callbacks" is a list of objects with names. callbacks/callbacks.h checks the rest,
// which depends on the program.
absl::Status CheckCallbackNames(const Json& callbacks);

// Applies callbacks to the job's options. "tensorboard" and "backup_and_restore" name features that
// are always on: their keys set "summary" and "checkpoint". The first "model_checkpoint" with a
// "monitor" selects the metric of the best checkpoint. Requires CheckCallbackNames to be OK.
absl::Status ApplyCallbacks(Job* job);

}  // namespace muster
