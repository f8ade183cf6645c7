// EvaluationState is the chief's data about the evaluator, the task that evaluates checkpoints. The
// functions in this header decide from this state. They are pure functions of the current time, the
// state and the rules. `now` comes from the clock of EvaluationService, which pauses while the
// chief's process is suspended.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "common/base/pausing_clock.h"
#include "common/job/timeouts.h"

namespace muster::chief {

// The evaluator is lost if it sends nothing for the time `heartbeat`, or if its connection breaks
// and it does not call again within the time `resume`. The completed job waits at most for the time
// `evaluate` for the evaluation of its last checkpoint.
struct EvaluationRules : Timeouts {
  // If the evaluator sends nothing for this long, another process may replace it. If the
  // evaluator's connection is broken, another process may replace it at once.
  Duration suspect = std::chrono::milliseconds(2500);
};

struct EvaluatorState {
  bool present = false;  // True if the evaluator has called and is not known to be lost.
  std::string task, host;
  int64_t pid = 0;
  uint64_t incarnation = 0;  // A random number that identifies the process.
  PausingTime last_heard;
  // The time at which the evaluator's connection broke. nullopt once it has called again.
  std::optional<PausingTime> broken_at;
  int64_t step = -1;  // The step of the checkpoint under evaluation, -1 if none.
  int64_t batches_done = 0, batches_total = 0;
};

struct EvaluationState {
  EvaluatorState evaluator;
  std::optional<int64_t> newest;  // The step of the newest announced checkpoint.
  bool final_announced = false;   // True if `newest` is the job's last checkpoint.
  std::set<int64_t> settled;      // Steps whose checkpoint was evaluated or cannot be evaluated.
  // When the completed job began to wait for the evaluator. nullopt during training.
  std::optional<PausingTime> waiting_since;
};

// Returns whether to offer the newest checkpoint to an evaluator that has finished the checkpoints
// up to `after_step`. The last checkpoint of the job is offered until its step is in `settled`,
// even if its step is not above `after_step`. The reason is that the evaluator may have sent the
// metrics of this checkpoint only to an earlier chief.
bool OffersNewest(const EvaluationState& state, int64_t after_step);

// Returns why the evaluator is lost, or "" if the evaluator is alive or there is no evaluator.
std::string WhyLost(PausingTime now, const EvaluatorState& evaluator, const EvaluationRules& rules);

// Returns whether another process may become the evaluator at `now`.
bool IsVacant(PausingTime now, const EvaluatorState& evaluator, const EvaluationRules& rules);

struct FinalWait {
  bool over = false;   // True if the job no longer waits.
  std::string reason;  // For the log, if the wait ends without the metrics of the last checkpoint.
};
// Decides whether a job that has completed training waits for the evaluator.
FinalWait DecideFinalWait(PausingTime now, const EvaluationState& state,
                          const EvaluationRules& rules);

}  // namespace muster::chief
