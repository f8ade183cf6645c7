// The coordinator's judgement where the loss of a member ends a generation, not the job.
#include <gmock/gmock.h>

#include "chief/decision/decision.h"

namespace muster::chief {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// Four members in step 5 of generation 1.
class RecoveryTest : public ::testing::Test {
 protected:
  RecoveryTest() {
    state_.started = state_.stage_since = now_;
    state_.stage = JobStage::kRunning;
    state_.generation = 1;
    for (const char* task : {"chief:0", "worker:0", "worker:1", "worker:2"}) {
      MemberInfo m;
      m.declared.task = *ParseTaskId(task);
      m.declared.address = std::string(task) + ".example:2222";
      m.process.joined = m.process.connected = m.in_generation = true;
      m.process.last_heard = m.report.phase_since = now_;
      m.report.formed_generation = 1;
      m.report.step = 5;
      m.report.last_step = 4;
      m.report.phase = Phase::kForward;
      state_.members.push_back(m);
    }
  }
  // Acts like the coordinator at kDrop and kAbortGeneration.
  void Drop(int i, const char* why) {
    MemberInfo absent;
    absent.declared.task = state_.members[i].declared.task;
    absent.declared.address = state_.members[i].declared.address;
    absent.in_generation = state_.members[i].in_generation;
    absent.why_missing = why;
    absent.missing_since = now_;
    state_.members[i] = absent;
  }
  void Abort() {
    state_.stage = JobStage::kJoining;
    state_.stage_since = now_;
  }
  void Wait(int i) {
    MemberInfo& m = state_.members[i];
    m.process.joined = m.process.connected = m.report.waiting = true;
    m.process.last_heard = now_;
  }
  void Pass(Duration d) {
    now_ += d;
    for (MemberInfo& m : state_.members) m.process.last_heard = now_;
  }
  Decision Now() { return Decide(now_, state_, options_); }

  PausingTime now_{std::chrono::hours(1)};
  JobState state_;
  MembershipOptions options_{{.phase = {}}};  // No phase has a limit.
};

TEST_F(RecoveryTest, ALossEndsTheGenerationOnly) {
  state_.members[2].process.connected = false;
  state_.members[2].process.gone = true;
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_EQ(d.member, 2);
  EXPECT_FALSE(d.expel);
  EXPECT_THAT(d.reason, HasSubstr("worker 1"));
}

TEST_F(RecoveryTest, AllMembersAreAwaitedAgainAndNobodyElseTrainsMeanwhile) {
  Drop(2, "lost: its process is gone");
  Abort();
  for (int i : {0, 1, 3}) Wait(i);
  Pass(options_.rejoin - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Wait(2);
  EXPECT_EQ(Now().action, Action::kForm);
}

TEST_F(RecoveryTest, AMemberThatNobodyReplacesIsTheVerdictWithTheReasonOfItsLoss) {
  Drop(2, "lost: its process is gone");
  Abort();
  for (int i : {0, 1, 3}) Wait(i);
  Pass(options_.rejoin);
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kEndJob);
  EXPECT_EQ(d.verdict.code, ExitCode::kRetryable);
  EXPECT_EQ(d.verdict.task, "worker:1");
  EXPECT_EQ(d.verdict.message,
            "lost: its process is gone; no process took its place within 600 s (timeouts.rejoin)");
}

TEST_F(RecoveryTest, ALossWhileMembersAreAwaitedIsAwaitedToo) {
  Drop(2, "lost");
  Abort();
  for (int i : {0, 1, 3}) Wait(i);
  state_.members[3].process.connected = false;
  state_.members[3].process.gone = true;
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kDrop);
  EXPECT_EQ(d.member, 3);
}

TEST_F(RecoveryTest, AMemberThatHangsIsDroppedAndNotified) {
  options_.phase[static_cast<int>(Phase::kReduce)] = seconds(60);
  for (int i : {0, 1, 3}) state_.members[i].report.phase = Phase::kReduce;
  Pass(seconds(60));
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_EQ(d.member, 2);
  EXPECT_TRUE(d.expel);
  EXPECT_THAT(d.verdict.message, HasSubstr("in phase 'forward' for 60.0 s while chief 0 waits"));
}

TEST_F(RecoveryTest, WhoComesBackFromAnAbortedGenerationHasAPhaseLongForIt) {
  options_.phase[static_cast<int>(Phase::kReduce)] = seconds(60);
  for (MemberInfo& m : state_.members) m.report.phase = Phase::kReduce;
  Pass(seconds(59));
  Drop(2, "lost");
  Abort();
  Pass(seconds(59));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(seconds(1));
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
  EXPECT_TRUE(Now().expel);
}

TEST_F(RecoveryTest, ACollectiveErrorWithoutARootCauseDropsNobody) {
  state_.members[1].report.collective_error =
      ReportedError{1, "worker:0 <-> worker:1: reset", now_};
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(options_.root_cause_wait);
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_EQ(d.member, -1);
}

TEST_F(RecoveryTest, AStopEndsWithThoseWhoAreThere) {
  Drop(2, "lost");
  Abort();
  state_.stop_requested = true;
  for (int i : {0, 1}) Wait(i);
  EXPECT_EQ(Now().action, Action::kWait);  // worker 2 is still on its way back
  Wait(3);
  EXPECT_EQ(Now().action, Action::kForm);
}

TEST_F(RecoveryTest, ElasticGoesOnWithFewerAfterTheGrace) {
  options_.min_members = 2;
  options_.grace = seconds(5);
  Drop(2, "lost");
  Abort();
  for (int i : {0, 1, 3}) Wait(i);
  Pass(seconds(5) - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(milliseconds(1));
  EXPECT_EQ(Now().action, Action::kForm);
}

TEST_F(RecoveryTest, ElasticNeedsTheChiefTheLeastAndMoreThanHalf) {
  options_.min_members = 2;
  options_.grace = seconds(0);
  for (int i : {1, 2, 3}) Drop(i, "lost");
  Abort();
  for (int i : {0, 3}) Wait(i);
  EXPECT_EQ(Now().action, Action::kWait);  // two of four are no majority
  Wait(2);
  EXPECT_EQ(Now().action, Action::kForm);
  options_.min_members = 4;
  EXPECT_EQ(Now().action, Action::kWait);
  options_.min_members = 2;
  state_.members[0].report.waiting = false;
  EXPECT_EQ(Now().action, Action::kWait);  // the chief is on its way
}

TEST_F(RecoveryTest, ANewMemberIsAdmitted) {
  Drop(2, "lost");
  state_.members[2].in_generation = false;  // a generation of the three others runs
  EXPECT_EQ(Now().action, Action::kWait);
  Wait(2);
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
  EXPECT_EQ(Now().member, -1);
  // At the end there is nothing left to do for it.
  state_.members[0].report.finished = true;
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(RecoveryTest, ANewMemberThatIsLostIsMissedByNobody) {
  state_.members[2].in_generation = false;
  state_.members[2].process.connected = false;
  state_.members[2].process.gone = true;
  EXPECT_EQ(Now().action, Action::kDrop);
}

TEST_F(RecoveryTest, ANewMemberThatHangsIsExpelledAndTheOthersContinue) {
  options_.min_members = 2;
  options_.phase[static_cast<int>(Phase::kStarting)] = seconds(60);
  Drop(2, "lost");
  state_.members[2].in_generation = false;
  state_.members[2].process.joined = state_.members[2].process.connected = true;
  state_.members[2].report.phase_since = now_;
  Pass(seconds(60));
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kDrop);
  EXPECT_TRUE(d.expel);
  EXPECT_EQ(d.member, 2);
  EXPECT_EQ(d.verdict.code, ExitCode::kRetryable);
}

TEST_F(RecoveryTest, AChiefThatFindsTheLastStepDoneEndsTheJobWithoutThoseThatHaveLeft) {
  state_.generation = 0;
  Abort();
  for (int i : {1, 2, 3}) Drop(i, "never connected");
  for (MemberInfo& m : state_.members) m.in_generation = false;
  Wait(0);
  state_.all_steps_done = true;
  Pass(options_.end - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(milliseconds(1));
  EXPECT_EQ(Now().action, Action::kForm);
  EXPECT_THAT(Now().reason, HasSubstr("1 of 4 members end the job"));
  state_.all_steps_done = false;
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(RecoveryTest, ElasticAMemberThatIsAskedToStopLeavesAlone) {
  options_.min_members = 2;
  state_.members[2].report.leaving = true;
  Decision d = Now();
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_EQ(d.member, 2);
  EXPECT_TRUE(d.expel);
  EXPECT_EQ(d.verdict.code, ExitCode::kPreempted);
  EXPECT_EQ(d.verdict.task, "worker:1");
  EXPECT_EQ(d.reason, "worker 1 leaves, as asked; the others continue");
  // While members are awaited nobody's step is cut off.
  Abort();
  d = Now();
  EXPECT_EQ(d.action, Action::kDrop);
  EXPECT_TRUE(d.expel);
}

TEST_F(RecoveryTest, WithoutElasticNobodyLeavesAlone) {
  state_.members[2].report.leaving = true;
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(RecoveryTest, ElasticTheChiefsLeaveStopsAll) {
  options_.min_members = 2;
  state_.members[0].report.leaving = true;
  EXPECT_EQ(Now().action, Action::kStop);
  state_.stop_requested = true;
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(RecoveryTest, ElasticALeaveThatLeavesTooFewStopsAll) {
  options_.min_members = 4;
  state_.members[2].report.leaving = true;
  EXPECT_EQ(Now().action, Action::kStop);
  // Two remain of a generation of three: enough. One of two: no majority.
  options_.min_members = 1;
  state_.members[3].in_generation = false;
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
  state_.members[1].in_generation = false;
  EXPECT_EQ(Now().action, Action::kStop);
}

TEST_F(RecoveryTest, ElasticWhoIsNotInTheGenerationLeavesWithoutANotice) {
  options_.min_members = 3;
  state_.members[2].in_generation = false;
  Wait(2);
  state_.members[2].report.leaving = true;
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kDrop);  // not taken in
  EXPECT_EQ(d.member, 2);
  EXPECT_TRUE(d.expel);
}

TEST_F(RecoveryTest, ElasticALeaveBeforeTheFirstGenerationStopsAll) {
  options_.min_members = 2;
  state_.generation = 0;
  state_.stage = JobStage::kJoining;
  for (MemberInfo& m : state_.members) m.in_generation = false;
  state_.members[2].report.leaving = true;
  EXPECT_EQ(Now().action, Action::kStop);
}

TEST_F(RecoveryTest, ElasticNobodyLeavesAtTheEnd) {
  options_.min_members = 2;
  state_.members[0].report.finished = true;
  state_.members[2].report.leaving = true;
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(RecoveryTest, ElasticAllWhoLeaveDoSoOneByOneUntilTooFewRemain) {
  options_.min_members = 2;
  for (MemberInfo& m : state_.members) m.report.leaving = true;
  state_.members[0].report.leaving = false;
  EXPECT_EQ(Now().member, 1);
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
  Drop(1, "left");
  state_.members[1].left = true;
  Abort();
  // Two of the four would remain.
  EXPECT_EQ(Now().action, Action::kStop);
}

TEST_F(RecoveryTest, ElasticNobodyCountsOnALostMemberToComeAgain) {
  options_.min_members = 3;
  Drop(1, "lost: its process is gone");
  Abort();
  state_.members[2].report.leaving = true;
  EXPECT_EQ(Now().action, Action::kStop);
}

TEST_F(RecoveryTest, ElasticNoGraceForWhoHasLeft) {
  options_.min_members = 2;
  options_.grace = seconds(30);
  Drop(2, "left");
  state_.members[2].left = true;
  Abort();
  for (int i : {0, 1}) Wait(i);
  EXPECT_EQ(Now().action, Action::kWait);  // worker 2 is on its way back
  Wait(3);
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kForm);
  EXPECT_EQ(d.reason, "3 of 4 members continue");
}

// A chief that was restarted: it knows nothing of a generation, its members hold the state of one.
class SuccessorTest : public RecoveryTest {
 protected:
  SuccessorTest() {
    options_.min_members = 2;
    options_.grace = seconds(5);
    state_.stage = JobStage::kJoining;
    state_.generation = 0;
    state_.adopted_size = 3;
    for (MemberInfo& m : state_.members) {
      m.in_generation = m.process.joined = m.process.connected = false;
      m.report.formed_generation = 0;
    }
  }
};

TEST_F(SuccessorTest, GoesOnWithMoreThanHalfOfWhatWasAfterTheGrace) {
  for (int i : {0, 2}) Wait(i);
  Pass(seconds(5) - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(milliseconds(1));
  EXPECT_EQ(Now().action, Action::kForm);
  state_.adopted_size = 4;  // two are no majority of those
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(SuccessorTest, WaitsLikeAfterALossNotLikeAtTheStart) {
  options_.join = seconds(1);
  options_.min_members = 0;
  for (int i : {0, 2}) Wait(i);
  Pass(options_.rejoin - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(milliseconds(1));
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kEndJob);
  EXPECT_THAT(d.verdict.message, HasSubstr("no generation could be formed within 600 s"));
  EXPECT_THAT(d.verdict.message, HasSubstr("2/4 joined, missing worker 0"));
}

TEST_F(SuccessorTest, AShortGraceIsNotShorterThanTheWayOfThoseWhoHoldState) {
  options_.grace = milliseconds(500);
  for (int i : {0, 2, 3}) Wait(i);
  Pass(options_.survivors - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(milliseconds(1));
  EXPECT_EQ(Now().action, Action::kForm);
}

TEST_F(SuccessorTest, StopsAfterAStepThatTheMembersHoldAsStateIsThere) {
  state_.stop_requested = true;
  for (int i : {0, 2}) Wait(i);
  EXPECT_EQ(Now().action, Action::kWait) << "those who have not come yet may hold a newer one";
  Pass(options_.survivors);
  EXPECT_EQ(Now().action, Action::kForm);
}

TEST_F(SuccessorTest, WithoutAnyStateAStopEndsTheJob) {
  state_.adopted_size = 0;
  state_.stop_requested = true;
  for (int i : {0, 2}) Wait(i);
  EXPECT_EQ(Now().action, Action::kWait) << "those who have not come yet may hold state";
  Pass(options_.survivors);
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kEndJob);
  EXPECT_EQ(d.verdict.code, ExitCode::kPreempted);
}

TEST_F(RecoveryTest, WhoIsGoneIsNamedRatherThanWhoIsSlow) {
  Drop(3, "lost: its process is gone");
  Abort();
  Wait(0);
  Wait(2);  // worker 0 is still in its program
  Pass(options_.rejoin);
  EXPECT_EQ(Now().verdict.task, "worker:2");
  EXPECT_THAT(Now().verdict.message, HasSubstr("its process is gone; no process took its place"));
  Wait(3);
  EXPECT_EQ(Now().verdict.task, "worker:0");
  EXPECT_THAT(Now().verdict.message, HasSubstr("did not return to the others"));
}

}  // namespace
}  // namespace muster::chief
