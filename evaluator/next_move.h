// The evaluator's reaction to the chief's reply, as a pure function, so that tests need no chief.
#pragma once

#include <cstdint>
#include <string>

#include "proto/evaluation.pb.h"

namespace muster {

struct FollowState {
  uint64_t chief_incarnation = 0;  // The chief whose job was taken. 0: none yet.
  std::string run_id, job;         // As taken from the chief.
  bool prepared = false;           // Datasets and models of `job` are loaded.
  int64_t after_step = -1;         // All checkpoints up to this step are evaluated or skipped.
};

enum class Move {
  kEnd,       // The job has ended.
  kAskJob,    // The chief is new, so its job is requested.
  kPrepare,   // The job is new.
  kEvaluate,  // Evaluate the announced checkpoint.
  kAsk,       // Nothing to do: ask again.
};

// Updates `state` with the chief and run of the reply. If the run is a new one, the steps of the
// previous run are discarded.
Move NextMove(const proto::NextCheckpointReply& reply, FollowState* state);

}  // namespace muster
