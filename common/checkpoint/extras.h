// The optional parts of a TrainingState. In state.json each of these has its own key, present only
// where it differs from the default below. State files of older versions, which lack the keys, can
// be read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/checkpoint/callback_record.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::checkpoint {

struct ReportedSum {
  double sum = 0;     // Sum of value x weight.
  double weight = 0;  // Sum of the examples' weights, each 1 unless the program gives weights.
  void Add(double mean, double of_weight) {
    sum += mean * of_weight;
    weight += of_weight;
  }
  double mean() const { return weight == 0 ? 0 : sum / weight; }
  friend bool operator==(const ReportedSum&, const ReportedSum&) = default;
};

// The position of the next example in a data set. `over`: the pass before it has ended, and the
// program has not been notified yet.
struct DataPlace {
  int64_t epoch = 0, offset = 0;
  bool over = false;
  friend bool operator==(const DataPlace&, const DataPlace&) = default;
};

// Steps of a run in float16 that updated nothing because gradients were not finite.
struct SkippedSteps {
  int64_t total = 0, in_a_row = 0;  // `in_a_row` ends with the last step.
  void Add(bool skipped) {
    total += skipped ? 1 : 0;
    in_a_row = skipped ? in_a_row + 1 : 0;
  }
  friend bool operator==(const SkippedSteps&, const SkippedSteps&) = default;
};

struct Extras {
  // Key "epoch_values": the sums of the values that steps reported in the epoch of the last step.
  std::map<std::string, ReportedSum> epoch_values;
  // Key "datasets": the positions of the program's own data sets, by name.
  std::map<std::string, DataPlace> datasets;
  // Key "stream": for training data of unknown size, the position of the example at (epoch, offset)
  // in the data. `epoch` is the pass over the data, `offset` the index in that pass. Absent where
  // both positions are equal.
  std::optional<DataPlace> stream;
  // Key "batch_steps": the number of steps for the batch at (epoch, offset), and the number of
  // those made. 0: no batch is begun.
  int64_t batch_steps = 0, batch_steps_done = 0;
  // Key "replicas": the world size of the first start, where learning rates scale with it. 0: they
  // do not.
  int64_t replicas = 0;
  // Key "finished": the program ended its training here.
  bool finished = false;
  // Key "skipped_steps".
  SkippedSteps skipped;
  // Key "callbacks": absent where the run has none.
  std::optional<CallbackRecord> callbacks;
  friend bool operator==(const Extras&, const Extras&) = default;
};

// Adds the keys to `*json`, an object.
void AddExtras(const Extras& extras, Json* json);
// Reads the keys and removes them from `*json`. A DataError names the wrong one.
absl::StatusOr<Extras> TakeExtras(Json* json);

}  // namespace muster::checkpoint
