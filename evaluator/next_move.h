// NextMove decides what the evaluator does after a reply from the chief. It is a pure function, so
// tests need no chief.
#pragma once

#include <cstdint>
#include <string>

#include "proto/evaluation.pb.h"

namespace muster::evaluator {

struct FollowState {
  uint64_t chief_incarnation = 0;  // The chief that sent `job`. 0: none yet.
  std::string run_id, job;         // From the chief.
  bool prepared = false;           // Datasets and models of `job` are loaded.
  int64_t after_step = -1;         // All checkpoints up to this step are evaluated or skipped.
};

enum class Move {
  kEnd,       // The job has ended.
  kAskJob,    // The chief is new: request its job.
  kPrepare,   // The job is new: prepare datasets and models.
  kEvaluate,  // Evaluate the announced checkpoint.
  kAsk,       // Nothing to do: ask again.
};

// Updates `state` with the chief, run and job of the reply. Resets `after_step` if the run is a new
// one.
Move NextMove(const proto::NextCheckpointReply& reply, FollowState* state);

}  // namespace muster::evaluator
