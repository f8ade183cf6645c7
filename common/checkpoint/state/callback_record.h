// The part of the training state that belongs to callbacks: their state and their decisions. This
// part is equal on all replicas.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::checkpoint {

struct CallbackRecord {
  // The keys of `states`, `kept` and `notes` are names of callbacks. The keys of `rates` and
  // `rates_of` are names of optimizers.
  std::map<std::string, Json> states;   // The results of Callback::state().
  std::map<std::string, double> rates;  // The learning rates that callbacks have set.
  // For each optimizer in `rates`: the job's learning rate, which the callback's rate replaces.
  // Empty if a Muster version without this member wrote the checkpoint.
  std::map<std::string, Json> rates_of;
  std::map<std::string, int64_t> kept;  // The step of each callback's kept weights.
  std::map<std::string, Json> notes;    // The content of "callbacks" in result.json.
  // The numbers of epochs for which the hooks epoch_begin and epoch_end have run, and the numbers
  // of steps for which the hooks step_begin and step_end have run.
  int64_t epochs_begun = 0, epochs_ended = 0, steps_begun = 0, steps_ended = 0;
  bool ended = false;      // True once the callbacks for the end of training have run.
  std::string stop;        // Why a callback stopped training. Empty if no callback did.
  int64_t weights_of = 0;  // The step whose weights a callback has restored. 0: none.
  friend bool operator==(const CallbackRecord&, const CallbackRecord&) = default;
};

Json ToJson(const CallbackRecord& record);
// Returns a DataError that names the wrong field.
absl::StatusOr<CallbackRecord> CallbackRecordFromJson(const Json& json);

}  // namespace muster::checkpoint
