#include "common/checkpoint/state/callback_place.h"

#include <algorithm>

namespace muster::checkpoint {

void TakeOver(const CallbackPlace& place, std::optional<CallbackRecord>* record) {
  const bool begun = place.steps > 0;
  const int64_t epochs_over = begun ? place.last_epoch + (place.over ? 1 : 0) : 0;
  if (!*record) {
    CallbackRecord& made = record->emplace();
    made.steps_begun = made.steps_ended = place.steps;
    made.epochs_begun = begun ? place.last_epoch + 1 : 0;
    made.epochs_ended = epochs_over - (place.over && place.validation_due ? 1 : 0);
    made.ended = begun && place.through && !place.validation_due && !place.test_due;
  }
  if (place.through) return;
  if ((*record)->ended) {
    (*record)->ended = false;
    (*record)->stop.clear();
    (*record)->weights_of = 0;
  }
  if ((*record)->stop.empty())
    (*record)->epochs_ended = std::min((*record)->epochs_ended, epochs_over);
}

}  // namespace muster::checkpoint
