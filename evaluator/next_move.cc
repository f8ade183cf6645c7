#include "evaluator/next_move.h"

namespace muster::evaluator {

Move NextMove(const proto::NextCheckpointReply& reply, FollowState* state) {
  if (reply.has_end()) return Move::kEnd;
  if (reply.chief_incarnation() != state->chief_incarnation) {
    if (reply.job().empty()) return Move::kAskJob;
    state->chief_incarnation = reply.chief_incarnation();
    if (reply.run_id() != state->run_id) state->after_step = -1;
    state->run_id = reply.run_id();
    state->prepared = state->prepared && state->job == reply.job();
    state->job = reply.job();
  }
  if (!state->prepared) return Move::kPrepare;
  return reply.has_checkpoint() ? Move::kEvaluate : Move::kAsk;
}

}  // namespace muster::evaluator
