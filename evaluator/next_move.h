// What an evaluator does with the chief's answer: a pure function, so that a test needs no chief.
#pragma once

#include <cstdint>
#include <string>

#include "proto/evaluation.pb.h"

namespace muster {

struct FollowState {
  uint64_t chief_incarnation = 0;  // whose job was taken; 0: none yet
  std::string run_id, job;         // as taken
  bool prepared = false;           // datasets and models of `job` are there
  int64_t after_step = -1;         // up to here all is done, or left out
};

enum class Move {
  kEnd,       // the job has ended
  kAskJob,    // another chief than before, or the first one: its job is wanted
  kPrepare,   // the job is new
  kEvaluate,  // the announced checkpoint
  kAsk,       // nothing to do: ask again
};

// Takes what the answer says about chief and run into `state`. Steps of another run are worth
// nothing: they are forgotten.
Move NextMove(const proto::NextCheckpointReply& reply, FollowState* state);

}  // namespace muster
