// The decisions and the state of callbacks: a part of the training state, equal on all replicas.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::checkpoint {

struct CallbackRecord {
  std::map<std::string, Json> states;   // By name: Callback::state().
  std::map<std::string, double> rates;  // By optimizer: learning rates that callbacks have set.
  // By optimizer: the job's own learning rate that a rate in `rates` replaces. Absent in older
  // checkpoints.
  std::map<std::string, Json> rates_of;
  std::map<std::string, int64_t> kept;  // By name: the step of the weights that a callback keeps.
  std::map<std::string, Json> notes;    // The "callbacks" of result.json.
  // Numbers of epochs and steps whose begin and end callbacks have run. Each counts once.
  int64_t epochs_begun = 0, epochs_ended = 0, steps_begun = 0, steps_ended = 0;
  bool ended = false;      // True once the end callbacks of training have run.
  std::string stop;        // Why training was stopped. Empty: it was not.
  int64_t weights_of = 0;  // The step whose weights were put back. 0: none.
  friend bool operator==(const CallbackRecord&, const CallbackRecord&) = default;
};

Json ToJson(const CallbackRecord& record);
// A DataError is a clause about a field.
absl::StatusOr<CallbackRecord> CallbackRecordFromJson(const Json& json);

}  // namespace muster::checkpoint
