// Where a run goes on, as far as callbacks are concerned.
#pragma once

#include <cstdint>
#include <optional>

#include "common/checkpoint/callback_record.h"

namespace muster::checkpoint {

// The state after `steps` steps. `over`: the last step's epoch is; `through`: training is.
struct CallbackPlace {
  int64_t steps = 0, last_epoch = 0;
  bool over = false, through = false, validation_due = false, test_due = false;
};

// Makes `record` fit the place: one where the state has none (of before there were callbacks, or a
// beginning), with nothing left to do but what is due; and a job that has become longer since its
// end has no end yet.
void TakeOver(const CallbackPlace& place, std::optional<CallbackRecord>* record);

}  // namespace muster::checkpoint
