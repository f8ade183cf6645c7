// What the job's "callbacks" say of the job itself.
#pragma once

#include "common/train/job.h"

namespace muster {

// That "callbacks" is a list of objects with names; what else there may be is the program's to say
// (callbacks/callbacks.h).
absl::Status CheckCallbackNames(const Json& callbacks);

// "tensorboard" and "backup_and_restore" are names for what is always on: their keys set "summary"
// and "checkpoint". The first "model_checkpoint" with a monitor of the validation says what the
// best checkpoint is. REQUIRES: CheckCallbackNames is OK.
absl::Status ApplyCallbacks(Job* job);

}  // namespace muster
