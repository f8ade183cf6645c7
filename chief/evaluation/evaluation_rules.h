// The chief's state of its evaluator, and the decisions that follow from this state. Decisions are
// pure functions of (now, state, rules), so tests pass the time as an argument. `now` comes from
// the clock of EvaluationService, which pauses while the chief's process is suspended.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "common/base/pausing_clock.h"

namespace muster::chief {

struct EvaluationRules {
  Duration heartbeat = std::chrono::seconds(10);  // The evaluator is lost after this silence.
  // The evaluator may reconnect within this time after its connection broke.
  Duration resume = std::chrono::seconds(1);
  Duration evaluate = std::chrono::minutes(10);  // Limit for the final evaluation.
  // Another process may replace the evaluator after this silence.
  Duration suspect = std::chrono::milliseconds(2500);
};

struct EvaluatorState {
  bool present = false;  // The evaluator has called, and is not known to be lost.
  std::string task, host;
  int64_t pid = 0;
  uint64_t incarnation = 0;
  PausingTime last_heard;
  // The evaluator's connection broke at this time, and the evaluator has not called since.
  std::optional<PausingTime> broken_at;
  int64_t step = -1;  // The step of the checkpoint under evaluation, -1 if none.
  int64_t batches_done = 0, batches_total = 0;
};

struct EvaluationState {
  EvaluatorState evaluator;
  std::optional<int64_t> newest;  // Step of the newest announced checkpoint.
  bool final_announced = false;   // `newest` is the job's last checkpoint.
  std::set<int64_t> settled;      // Steps whose checkpoint was evaluated or cannot be evaluated.
  // Set once training is complete and the job waits for the evaluator.
  std::optional<PausingTime> waiting_since;
};

// Returns whether to offer the newest checkpoint to an evaluator that has finished all checkpoints
// up to `after_step`. The final checkpoint is offered until it is settled. An evaluator may have
// evaluated it for an earlier chief. It then repeats the evaluation, because this chief does not
// have the metrics.
bool OffersNewest(const EvaluationState& state, int64_t after_step);

// Returns why the evaluator is lost, "" if it is alive or there is none.
std::string WhyLost(PausingTime now, const EvaluatorState& evaluator, const EvaluationRules& rules);

// Returns whether another process may become the evaluator now.
bool IsVacant(PausingTime now, const EvaluatorState& evaluator, const EvaluationRules& rules);

struct FinalWait {
  bool over = false;
  std::string reason;  // For the log, if the wait ends without the final evaluation.
};
// Decides whether a job that has completed training still waits for the evaluator.
FinalWait DecideFinalWait(PausingTime now, const EvaluationState& state,
                          const EvaluationRules& rules);

}  // namespace muster::chief
