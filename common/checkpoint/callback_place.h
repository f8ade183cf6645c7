// Adapts the CallbackRecord of a checkpoint to the step at which a run resumes.
#pragma once

#include <cstdint>
#include <optional>

#include "common/checkpoint/callback_record.h"

namespace muster::checkpoint {

// The point at which a run resumes: after `steps` steps. `over` is true if the epoch of the last
// step has ended, and `through` is true if training has ended.
struct CallbackPlace {
  int64_t steps = 0, last_epoch = 0;
  bool over = false, through = false, validation_due = false, test_due = false;
};

// Makes `*record` consistent with `place`. If there is no record (a new run, or a checkpoint of a
// version without callbacks), creates one. A new record counts all callbacks up to `place` as done,
// except those that are due. If a finished job was made longer, the record no longer says that
// training has ended.
void TakeOver(const CallbackPlace& place, std::optional<CallbackRecord>* record);

}  // namespace muster::checkpoint
