// Fits the callbacks' record to the point at which a run resumes.
#pragma once

#include <cstdint>
#include <optional>

#include "common/checkpoint/callback_record.h"

namespace muster::checkpoint {

// The state after `steps` steps. `over`: the epoch of the last step has ended. `through`: training
// has ended.
struct CallbackPlace {
  int64_t steps = 0, last_epoch = 0;
  bool over = false, through = false, validation_due = false, test_due = false;
};

// Makes `record` consistent with `place`. Creates a record where the state has none (a new run, or
// a checkpoint from before callbacks existed). The new record counts everything as done except what
// is still due. Where a finished job has become longer, removes its end from the record.
void TakeOver(const CallbackPlace& place, std::optional<CallbackRecord>* record);

}  // namespace muster::checkpoint
