// Adapts the callbacks' state in a checkpoint (callback_record.h) to the step at which a run
// resumes.
#pragma once

#include <cstdint>
#include <optional>

#include "common/checkpoint/state/callback_record.h"

namespace muster::checkpoint {

// The point at which a run resumes: after `steps` completed steps. `last_epoch` is the epoch of the
// last step, and `over` is true if that epoch has ended. `through` is true if training has ended.
// `validation_due` and `test_due` are true if the validation or test pass after the last step is
// not finished.
struct CallbackPlace {
  int64_t steps = 0, last_epoch = 0;
  bool over = false, through = false, validation_due = false, test_due = false;
};

// Makes `*record` consistent with `place`. If `*record` is nullopt, creates a record. (This is the
// case in a new run, or after a checkpoint of a Muster version without callbacks.) The created
// record says that the callbacks for all steps and epochs before `place` have run. If a validation
// or test pass is due, callbacks that wait for this pass count as not run. If `*record` says that
// training has ended but `place.through` is false, the user has made a finished job longer.
// TakeOver then makes the record say that training continues.
void TakeOver(const CallbackPlace& place, std::optional<CallbackRecord>* record);

}  // namespace muster::checkpoint
