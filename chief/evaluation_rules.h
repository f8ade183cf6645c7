// What the chief knows of its evaluator, and what it decides from that: pure functions of (now,
// state, options), so that tests move time by argument. Only the clock of the chief's evaluation,
// which pauses while the chief is held up.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "common/base/pausing_clock.h"

namespace muster {

struct EvaluationRules {
  Duration heartbeat = std::chrono::seconds(10);  // silence after which the evaluator is lost
  Duration resume = std::chrono::seconds(1);      // a broken connection may come back
  Duration evaluate = std::chrono::minutes(10);   // for the final evaluation
  // Silence after which another process may take the evaluator's place.
  Duration suspect = std::chrono::milliseconds(2500);
};

struct EvaluatorState {
  bool present = false;  // it called, and nothing tells yet that it is gone
  std::string task, host;
  int64_t pid = 0;
  uint64_t incarnation = 0;
  PausingTime last_heard;
  std::optional<PausingTime> broken_at;  // its connection broke, and it has not called since
  int64_t step = -1;                     // of the checkpoint it is evaluating
  int64_t batches_done = 0, batches_total = 0;
};

struct EvaluationState {
  EvaluatorState evaluator;
  std::optional<int64_t> newest;             // step of the newest checkpoint that was announced
  bool final_announced = false;              // and it is the job's last one
  std::set<int64_t> settled;                 // steps that were evaluated, or cannot be
  std::optional<PausingTime> waiting_since;  // the job is through, and waits for the evaluator
};

// Whether `evaluator`, which has checkpoints up to `after_step` behind it, is to be given the
// newest one. The final one is given until it is settled: an evaluator that did it for an earlier
// chief does it again for this one, which has no metrics of it.
bool OffersNewest(const EvaluationState& state, int64_t after_step);

// Why the evaluator has to be given up, "" while there is none or it is alive.
std::string WhyLost(PausingTime now, const EvaluatorState& evaluator, const EvaluationRules& rules);

// Whether another process may be the evaluator now.
bool IsVacant(PausingTime now, const EvaluatorState& evaluator, const EvaluationRules& rules);

struct FinalWait {
  bool over = false;
  std::string reason;  // for the log, where it is over without the final evaluation
};
// The wait of a job that is through with its training.
FinalWait DecideFinalWait(PausingTime now, const EvaluationState& state,
                          const EvaluationRules& rules);

}  // namespace muster
