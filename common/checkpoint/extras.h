// What a TrainingState holds besides what every run needs. In state.json each of these is a key of
// its own, and is there only where it is not as below: files of before are read.
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
  double sum = 0;     // of value x weight
  double weight = 0;  // of the examples, each 1 unless the program gives weights
  void Add(double mean, double of_weight) {
    sum += mean * of_weight;
    weight += of_weight;
  }
  double mean() const { return weight == 0 ? 0 : sum / weight; }
  friend bool operator==(const ReportedSum&, const ReportedSum&) = default;
};

// The next example of a data set; `over`: the pass before it is, and the program has not heard so.
struct DataPlace {
  int64_t epoch = 0, offset = 0;
  bool over = false;
  friend bool operator==(const DataPlace&, const DataPlace&) = default;
};

// Steps of a run in float16 that updated nothing, for gradients were not finite.
struct SkippedSteps {
  int64_t total = 0, in_a_row = 0;  // in_a_row: up to the last step
  void Add(bool skipped) {
    total += skipped ? 1 : 0;
    in_a_row = skipped ? in_a_row + 1 : 0;
  }
  friend bool operator==(const SkippedSteps&, const SkippedSteps&) = default;
};

struct Extras {
  // "epoch_values": of what steps reported, in the epoch of the last step.
  std::map<std::string, ReportedSum> epoch_values;
  // "datasets": the program's own, by name.
  std::map<std::string, DataPlace> datasets;
  // "stream": of training data of unknown size the pass over it, and the number in it, of the
  // example that epoch and offset tell. Absent: they are the same.
  std::optional<DataPlace> stream;
  // "batch_steps": how many steps the batch at epoch and offset is for, of which `done` are made.
  // 0: none is begun.
  int64_t batch_steps = 0, batch_steps_done = 0;
  // "replicas": those of the first start, where learning rates scale with them; 0: they do not.
  int64_t replicas = 0;
  // "finished": the program ended its training here.
  bool finished = false;
  // "skipped_steps"
  SkippedSteps skipped;
  // "callbacks": absent where the run has none.
  std::optional<CallbackRecord> callbacks;
  friend bool operator==(const Extras&, const Extras&) = default;
};

// Adds the keys to `*json`, an object.
void AddExtras(const Extras& extras, Json* json);
// Removes them from it. A DataError names the one that is wrong.
absl::StatusOr<Extras> TakeExtras(Json* json);

}  // namespace muster::checkpoint
