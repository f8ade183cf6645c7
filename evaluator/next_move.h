// NextMove selects the evaluator's next action after a reply from the chief. The function does no
// I/O, so tests need no chief.
#pragma once

#include <cstdint>
#include <string>

#include "proto/evaluation.pb.h"

namespace muster::evaluator {

struct FollowState {
  uint64_t chief_incarnation = 0;  // Identifies the chief's process that sent `job`. 0: none yet.
  std::string run_id, job;         // The run's id and the resolved job, both sent by the chief.
  bool prepared = false;           // True if datasets and models of `job` are loaded.
  int64_t after_step = -1;         // All checkpoints up to this step are evaluated or skipped.
};

// The next action of the evaluator.
enum class Move {
  kEnd,       // The job has ended: exit.
  kAskJob,    // A new chief process has replied: request its job.
  kPrepare,   // The job is new: load datasets and models.
  kEvaluate,  // Evaluate the announced checkpoint.
  kAsk,       // There is no checkpoint to evaluate: ask the chief again.
};

// If the reply has the job of a new chief process, copies chief_incarnation, run_id and job to
// `*state`. If the run is also new, sets `after_step` to -1.
Move NextMove(const proto::NextCheckpointReply& reply, FollowState* state);

}  // namespace muster::evaluator
