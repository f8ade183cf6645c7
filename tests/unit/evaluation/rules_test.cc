// Tests the decisions of both sides, with the time as an argument.
#include <gmock/gmock.h>

#include "chief/evaluation/evaluation_rules.h"
#include "evaluator/next_move.h"

namespace muster::evaluator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const PausingTime kStart{std::chrono::hours(1)};

chief::EvaluationState WithEvaluator() {
  chief::EvaluationState state;
  state.evaluator.present = true;
  state.evaluator.task = "evaluator:0";
  state.evaluator.incarnation = 7;
  state.evaluator.last_heard = kStart;
  return state;
}

TEST(EvaluationRules, OffersTheNewestAboveWhatIsDone) {
  chief::EvaluationState state;
  EXPECT_FALSE(chief::OffersNewest(state, -1));
  state.newest = 300;
  EXPECT_TRUE(chief::OffersNewest(state, -1));
  EXPECT_TRUE(chief::OffersNewest(state, 200));
  EXPECT_FALSE(chief::OffersNewest(state, 300));
  EXPECT_FALSE(chief::OffersNewest(state, 400));
  state.settled = {300};
  EXPECT_FALSE(chief::OffersNewest(state, -1)) << "an evaluator that restarted repeats nothing";
}

TEST(EvaluationRules, OffersTheFinalOneUntilItIsSettled) {
  chief::EvaluationState state;
  state.newest = 300;
  state.final_announced = true;
  EXPECT_TRUE(chief::OffersNewest(state, 300)) << "it was evaluated for an earlier chief";
  state.settled = {300};
  EXPECT_FALSE(chief::OffersNewest(state, 200));
}

TEST(EvaluationRules, AnEvaluatorIsLostBySilence) {
  const chief::EvaluationRules rules;
  const chief::EvaluatorState evaluator = WithEvaluator().evaluator;
  EXPECT_EQ(chief::WhyLost(kStart + rules.heartbeat - milliseconds(1), evaluator, rules), "");
  EXPECT_THAT(chief::WhyLost(kStart + rules.heartbeat, evaluator, rules),
              HasSubstr("no heartbeat for"));
  EXPECT_EQ(chief::WhyLost(kStart + std::chrono::hours(1), chief::EvaluatorState(), rules), "");
}

TEST(EvaluationRules, ABrokenConnectionMayComeBack) {
  const chief::EvaluationRules rules;
  chief::EvaluatorState evaluator = WithEvaluator().evaluator;
  evaluator.broken_at = kStart;
  EXPECT_EQ(chief::WhyLost(kStart + rules.resume - milliseconds(1), evaluator, rules), "");
  EXPECT_THAT(chief::WhyLost(kStart + rules.resume, evaluator, rules),
              HasSubstr("connection broke"));
}

TEST(EvaluationRules, ThePlaceOfALiveEvaluatorIsTaken) {
  const chief::EvaluationRules rules;
  chief::EvaluatorState evaluator;
  EXPECT_TRUE(chief::IsVacant(kStart, evaluator, rules));
  evaluator = WithEvaluator().evaluator;
  EXPECT_FALSE(chief::IsVacant(kStart + seconds(1), evaluator, rules));
  EXPECT_TRUE(chief::IsVacant(kStart + rules.suspect, evaluator, rules));
  evaluator.broken_at = kStart;
  EXPECT_TRUE(chief::IsVacant(kStart, evaluator, rules));
}

TEST(EvaluationRules, TheFinalWaitEndsWithTheEvaluation) {
  const chief::EvaluationRules rules;
  chief::EvaluationState state = WithEvaluator();
  state.newest = 500;
  state.waiting_since = kStart;
  EXPECT_FALSE(chief::DecideFinalWait(kStart + seconds(1), state, rules).over);
  state.settled = {400};
  EXPECT_FALSE(chief::DecideFinalWait(kStart + seconds(1), state, rules).over);
  state.settled = {400, 500};
  const chief::FinalWait wait = chief::DecideFinalWait(kStart + seconds(1), state, rules);
  EXPECT_TRUE(wait.over);
  EXPECT_EQ(wait.reason, "");
}

TEST(EvaluationRules, NobodyIsWaitedForWhereNoneCameOrItIsGone) {
  chief::EvaluationState state;
  state.newest = 500;
  state.waiting_since = kStart;
  EXPECT_TRUE(chief::DecideFinalWait(kStart, state, {}).over);
}

TEST(EvaluationRules, TheFinalWaitHasADeadline) {
  const chief::EvaluationRules rules;
  chief::EvaluationState state = WithEvaluator();
  state.newest = 500;
  state.waiting_since = kStart;
  EXPECT_FALSE(
      chief::DecideFinalWait(kStart + rules.evaluate - milliseconds(1), state, rules).over);
  const chief::FinalWait wait = chief::DecideFinalWait(kStart + rules.evaluate, state, rules);
  EXPECT_TRUE(wait.over);
  EXPECT_THAT(wait.reason, HasSubstr("evaluator 0 did not evaluate the final checkpoint"));
  EXPECT_THAT(wait.reason, HasSubstr("timeouts.evaluate"));
}

TEST(EvaluationRules, ADeciderThatWasStoppedJudgesNobodyForIt) {
  const chief::EvaluationRules rules;
  MonotonicTime world{std::chrono::hours(1)};
  PausingClock clock(seconds(1), world);
  chief::EvaluationState state = WithEvaluator();
  state.newest = 500;
  state.waiting_since = state.evaluator.last_heard = clock.At(world);
  PausingTime now = clock.At(world += std::chrono::minutes(30));
  EXPECT_EQ(chief::WhyLost(now, state.evaluator, rules), "");
  EXPECT_FALSE(chief::DecideFinalWait(now, state, rules).over);
  // From there on its silence counts as ever.
  for (int i = 0; i < 100; ++i) now = clock.At(world += rules.heartbeat / 100);
  EXPECT_NE(chief::WhyLost(now, state.evaluator, rules), "");
}

proto::NextCheckpointReply FromChief(uint64_t chief, const std::string& run,
                                     const std::string& job = "") {
  proto::NextCheckpointReply reply;
  reply.set_chief_incarnation(chief);
  reply.set_run_id(run);
  reply.set_job(job);
  return reply;
}

TEST(NextMove, TakesTheJobThenPreparesThenEvaluates) {
  FollowState state;
  EXPECT_EQ(NextMove(FromChief(1, "run"), &state), Move::kAskJob);
  EXPECT_EQ(NextMove(FromChief(1, "run", "{}"), &state), Move::kPrepare);
  state.prepared = true;
  EXPECT_EQ(NextMove(FromChief(1, "run"), &state), Move::kAsk);
  auto reply = FromChief(1, "run");
  reply.mutable_checkpoint()->set_step(5);
  EXPECT_EQ(NextMove(reply, &state), Move::kEvaluate);
}

TEST(NextMove, TheEndGoesBeforeAll) {
  FollowState state;
  auto reply = FromChief(1, "run");
  reply.mutable_checkpoint()->set_step(5);
  reply.mutable_end()->set_exit_code(143);
  EXPECT_EQ(NextMove(reply, &state), Move::kEnd);
}

TEST(NextMove, ARestartedChiefIsAskedForItsJob) {
  FollowState state;
  NextMove(FromChief(1, "run", "a"), &state);
  state.prepared = true;
  state.after_step = 100;
  EXPECT_EQ(NextMove(FromChief(2, "run"), &state), Move::kAskJob);
  EXPECT_EQ(NextMove(FromChief(2, "run", "a"), &state), Move::kAsk) << "the same job: continue";
  EXPECT_EQ(state.after_step, 100);
  EXPECT_EQ(NextMove(FromChief(3, "run", "b"), &state), Move::kPrepare) << "another job";
  EXPECT_EQ(NextMove(FromChief(4, "other run", "b"), &state), Move::kPrepare);
  EXPECT_EQ(state.after_step, -1) << "steps of another run are worth nothing";
}

}  // namespace
}  // namespace muster::evaluator
