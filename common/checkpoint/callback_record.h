// What callbacks have decided and remember: a part of the training state, equal on all replicas.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "muster/json.h"
#include "muster/status.h"

namespace muster::checkpoint {

struct CallbackRecord {
  std::map<std::string, Json> states;   // Callback::state(), by name
  std::map<std::string, double> rates;  // by optimizer: those that were set
  // By optimizer: the job's, in whose place such a rate was set; none in files of before.
  std::map<std::string, Json> rates_of;
  std::map<std::string, int64_t> kept;  // weights that callbacks remember, by name: of which step
  std::map<std::string, Json> notes;    // result.json's "callbacks"
  // How many epochs and steps have had their begin and their end: each of them counts once.
  int64_t epochs_begun = 0, epochs_ended = 0, steps_begun = 0, steps_ended = 0;
  bool ended = false;      // training has had its end
  std::string stop;        // why training was stopped; empty: it was not
  int64_t weights_of = 0;  // the step whose weights were put back; 0: none
  friend bool operator==(const CallbackRecord&, const CallbackRecord&) = default;
};

Json ToJson(const CallbackRecord& record);
// A DataError, a clause about a field.
absl::StatusOr<CallbackRecord> CallbackRecordFromJson(const Json& json);

}  // namespace muster::checkpoint
