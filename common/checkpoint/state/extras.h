// The optional parts of a TrainingState (common/checkpoint/checkpoint.h). A part has a key in
// state.json only if the part differs from its default below. The state.json of an older version
// may lack keys, and can still be read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/checkpoint/state/callback_record.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::checkpoint {

// The weighted mean of a value that steps report.
struct ReportedSum {
  double sum = 0;     // The sum of value x weight.
  double weight = 0;  // The sum of the examples' weights. The default weight is 1.
  void Add(double mean, double of_weight) {
    sum += mean * of_weight;
    weight += of_weight;
  }
  double mean() const { return weight == 0 ? 0 : sum / weight; }
  friend bool operator==(const ReportedSum&, const ReportedSum&) = default;
};

// The position of the next example in a data set: the example has the index `offset` in pass number
// `epoch`. `over` is true if the previous pass has ended, but the program has not been notified.
struct DataPlace {
  int64_t epoch = 0, offset = 0;
  bool over = false;
  friend bool operator==(const DataPlace&, const DataPlace&) = default;
};

// The number of steps in float16 that were skipped because gradients were not finite.
struct SkippedSteps {
  // `in_a_row`: the number of consecutive skipped steps, up to the last step.
  int64_t total = 0, in_a_row = 0;
  void Add(bool skipped) {
    total += skipped ? 1 : 0;
    in_a_row = skipped ? in_a_row + 1 : 0;
  }
  friend bool operator==(const SkippedSteps&, const SkippedSteps&) = default;
};

struct Extras {
  // Key "epoch_values": the values that steps reported in the epoch of the last step, by name.
  std::map<std::string, ReportedSum> epoch_values;
  // Key "datasets": the positions of the program's own data sets, by name.
  std::map<std::string, DataPlace> datasets;
  // Key "stream": the position of the next example in training data of unknown size. Training reads
  // such data in passes, and an epoch may end within a pass. Absent if the position equals
  // (TrainingState::epoch, TrainingState::offset).
  std::optional<DataPlace> stream;
  // Key "batch_steps": the number of steps that the program makes with the next batch, and the
  // number of these steps that are complete. Both are 0 if no such step is complete.
  // TrainingState::offset is the start of this batch until the last of these steps is complete.
  int64_t batch_steps = 0, batch_steps_done = 0;
  // Key "replicas": the number of replicas at the first start. Learning rates are scaled by this
  // number. 0: learning rates are not scaled.
  int64_t replicas = 0;
  // Key "finished": true if the program ended its training at this step.
  bool finished = false;
  // Key "skipped_steps".
  SkippedSteps skipped;
  // Key "callbacks": absent if the run has no callbacks.
  std::optional<CallbackRecord> callbacks;
  friend bool operator==(const Extras&, const Extras&) = default;
};

// Adds the keys to the object `*json`.
void AddExtras(const Extras& extras, Json* json);
// Reads the keys and removes them from `*json`. Returns a DataError that names a key with a wrong
// value.
absl::StatusOr<Extras> TakeExtras(Json* json);

}  // namespace muster::checkpoint
