// The chief's state of its evaluator, and the decisions on it. Pure functions of (now, state,
// options), so tests move time by argument. `now` is read from the clock of the chief's evaluation
// service, which pauses while the chief is held up.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "common/base/pausing_clock.h"

namespace muster {

struct EvaluationRules {
  Duration heartbeat = std::chrono::seconds(10);  // The evaluator is lost after this silence.
  // A broken connection may be replaced within this time.
  Duration resume = std::chrono::seconds(1);
  Duration evaluate = std::chrono::minutes(10);  // Limit for the final evaluation.
  // Another process may replace the evaluator after this silence.
  Duration suspect = std::chrono::milliseconds(2500);
};

struct EvaluatorState {
  bool present = false;  // It has called, and is not known to be gone.
  std::string task, host;
  int64_t pid = 0;
  uint64_t incarnation = 0;
  PausingTime last_heard;
  std::optional<PausingTime> broken_at;  // Its connection broke, and it has not called since.
  int64_t step = -1;                     // The step of the checkpoint that it evaluates.
  int64_t batches_done = 0, batches_total = 0;
};

struct EvaluationState {
  EvaluatorState evaluator;
  std::optional<int64_t> newest;  // Step of the newest announced checkpoint.
  bool final_announced = false;   // `newest` is the job's last checkpoint.
  std::set<int64_t> settled;      // Steps that were evaluated or cannot be.
  // Set once training is complete and the job waits for the evaluator.
  std::optional<PausingTime> waiting_since;
};

// Returns whether to offer the newest checkpoint to an evaluator that has finished those up to
// `after_step`. The final one is offered until it is settled. An evaluator that did it for an
// earlier chief repeats it for this one, which does not have its metrics.
bool OffersNewest(const EvaluationState& state, int64_t after_step);

// Returns why the evaluator is lost, "" if it is alive or there is none.
std::string WhyLost(PausingTime now, const EvaluatorState& evaluator, const EvaluationRules& rules);

// Returns whether another process may become the evaluator now.
bool IsVacant(PausingTime now, const EvaluatorState& evaluator, const EvaluationRules& rules);

struct FinalWait {
  bool over = false;
  std::string reason;  // The reason to log if the wait ends without the final evaluation.
};
// Decides whether a job that has completed its training still waits for the evaluator.
FinalWait DecideFinalWait(PausingTime now, const EvaluationState& state,
                          const EvaluationRules& rules);

}  // namespace muster
