// The coordinator's judgement, with time as an argument.
#include "chief/decision/decision.h"

#include <gmock/gmock.h>

namespace muster::chief {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class DecisionTest : public ::testing::Test {
 protected:
  DecisionTest() {
    state_.started = state_.stage_since = now_;
    for (const char* task : {"chief:0", "worker:0", "worker:1"}) {
      MemberInfo m;
      m.declared.task = *ParseTaskId(task);
      m.declared.address = std::string(task) + ".example:2222";
      state_.members.push_back(m);
    }
  }
  void JoinAll() {
    for (int i = 0; i < 3; ++i) Join(i);
  }
  // Acts like the coordinator at kForm.
  void FormAll(uint64_t generation) {
    JoinAll();
    state_.stage = JobStage::kForming;
    state_.generation = generation;
    for (MemberInfo& m : state_.members) m.in_generation = true;
  }
  void Join(int i) {
    MemberInfo& m = state_.members[i];
    m.process.joined = m.process.connected = m.report.waiting = true;
    m.process.last_heard = m.report.phase_since = now_;
    m.process.host = "node-" + std::to_string(i);
  }
  // All in step 5, all well.
  void RunAll() {
    JoinAll();
    state_.stage = JobStage::kRunning;
    state_.generation = 1;
    for (MemberInfo& m : state_.members) {
      m.report.waiting = false;
      m.in_generation = true;
      m.report.formed_generation = 1;
      m.report.step = 5;
      m.report.phase = Phase::kForward;
    }
  }
  // Time passes; everybody but `silent` is heard.
  void Pass(Duration d, int silent = -1) {
    now_ += d;
    for (int i = 0; i < 3; ++i)
      if (i != silent) state_.members[i].process.last_heard = now_;
  }
  Decision Now() { return Decide(now_, state_, options_); }

  PausingTime now_{std::chrono::hours(1)};
  JobState state_;
  MembershipOptions options_{{.phase = {}}};  // No phase has a limit.
};

TEST_F(DecisionTest, FormsWhenAllAreReadyAndNotBefore) {
  Join(0);
  Join(2);
  EXPECT_EQ(Now().action, Action::kWait);
  Join(1);
  state_.members[1].report.waiting = false;  // still builds its datasets
  EXPECT_EQ(Now().action, Action::kWait);
  state_.members[1].report.waiting = true;
  EXPECT_EQ(Now().action, Action::kForm);
}

TEST_F(DecisionTest, TheRosterSaysWhoIsMissingAndWhy) {
  Join(0);
  Join(1);
  state_.members[1].report.waiting = false;
  state_.members[2].why_missing = "connection lost";
  state_.members[2].missing_since = now_;
  now_ += seconds(3);
  EXPECT_EQ(RosterLine(now_, state_),
            "1/3 joined, missing worker 0 (starting for 3 s), worker 1 (worker:1.example:2222, "
            "connection lost 3 s ago)");
}

TEST_F(DecisionTest, TheRosterOfManyDoesNotNameThemAll) {
  for (int i = 2; i < 1000; ++i) {
    MemberInfo m;
    m.declared.task = {TaskType::kWorker, i};
    m.declared.address = "a:1";
    state_.members.push_back(m);
  }
  Join(0);
  const std::string line = RosterLine(now_, state_);
  EXPECT_THAT(line, ::testing::StartsWith("1/1001 joined, missing worker 0 ("));
  EXPECT_THAT(line, ::testing::EndsWith("worker 15 (a:1, never connected) and 984 more"));
}

TEST_F(DecisionTest, TheJoinDeadlineEndsTheJobNamingTheMissing) {
  Join(0);
  Join(1);
  Pass(options_.join - seconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(seconds(1));
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kEndJob);
  EXPECT_EQ(d.verdict.code, ExitCode::kRetryable);
  EXPECT_THAT(d.verdict.message, HasSubstr("missing worker 1 (worker:1.example:2222, never"));
}

TEST_F(DecisionTest, AStopBeforeTheFirstGenerationEndsTheJob) {
  Join(0);
  state_.stop_requested = true;
  EXPECT_EQ(Now().action, Action::kWait) << "worker 1 may hold state of a chief before this one";
  Pass(options_.survivors);
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kEndJob);
  EXPECT_EQ(d.verdict.code, ExitCode::kPreempted);
  RunAll();
  EXPECT_EQ(Now().action, Action::kWait);  // the loops agree on a step
}

TEST_F(DecisionTest, AStopBeforeTheFirstGenerationWaitsForNobodyWhoIsThere) {
  for (int i = 0; i < static_cast<int>(state_.members.size()); ++i) Join(i);
  state_.stop_requested = true;
  EXPECT_EQ(Now().action, Action::kEndJob);
}

TEST_F(DecisionTest, AMemberLostBeforeTheFirstGenerationIsAwaitedAgain) {
  Join(0);
  Join(1);
  state_.members[1].process.connected = false;
  state_.members[1].process.broken_at = now_;
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(options_.resume);
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kDrop);
  EXPECT_EQ(d.member, 1);
}

TEST_F(DecisionTest, AMemberLostWhileFormingIsAwaitedAfterTheFormationThatFailedFirst) {
  FormAll(1);
  state_.members[1].process.connected = false;
  state_.members[1].process.broken_at = now_;
  state_.members[0].report.formation_error = ReportedError{1, "chief:0 <-> worker:0: reset", now_};
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
  state_.stage = JobStage::kJoining;
  state_.members[1].process.gone = true;
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kDrop);
  EXPECT_EQ(d.member, 1);
}

TEST_F(DecisionTest, StartsWhenAllHaveFormed) {
  FormAll(9);
  state_.members[0].report.formed_generation = state_.members[1].report.formed_generation = 9;
  state_.members[2].report.formed_generation = 8;
  EXPECT_EQ(Now().action, Action::kWait);
  state_.members[2].report.formed_generation = 9;
  EXPECT_EQ(Now().action, Action::kStart);
}

TEST_F(DecisionTest, TheThirdFailedFormationEndsTheJobNamingTheLink) {
  FormAll(2);
  state_.members[2].report.formation_error = ReportedError{1, "of an older generation", now_};
  EXPECT_EQ(Now().action, Action::kWait);
  state_.members[2].report.formation_error =
      ReportedError{2, "worker:0 <-> worker:1: refused", now_};
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
  state_.failed_formations = 2;
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kEndJob);
  EXPECT_EQ(d.verdict.code, ExitCode::kRetryable);
  EXPECT_THAT(d.verdict.message, HasSubstr("worker:0 <-> worker:1: refused"));
}

TEST_F(DecisionTest, AFormationThatCannotSucceedEndsTheJobAtOnceWithItsOwnCode) {
  FormAll(2);
  state_.members[1].report.formation_error = ReportedError{
      2, "shared_memory needs all members on one host", now_, ExitCode::kConfiguration};
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kEndJob);
  EXPECT_EQ(d.verdict.code, ExitCode::kConfiguration);
  EXPECT_EQ(d.verdict.task, state_.members[1].declared.task.ToString());
}

TEST_F(DecisionTest, AFailureIsSentToJoiningMembersForAMoment) {
  Join(0);
  state_.stage = JobStage::kEnding;
  state_.verdict.code = ExitCode::kDataDamaged;
  state_.stage_since = now_;
  state_.members[0].report.acknowledged = true;
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(options_.failure_ack_timeout);
  EXPECT_EQ(Now().action, Action::kClose);
}

TEST_F(DecisionTest, AFormationThatHangsNamesWhoHasNotFormed) {
  FormAll(2);
  state_.failed_formations = 2;
  state_.members[0].report.formed_generation = 2;
  Pass(options_.formation);
  EXPECT_THAT(Now().verdict.message, HasSubstr("worker 0, worker 1 did not form"));
}

TEST_F(DecisionTest, AMemberWhoseProcessIsGoneIsLostAtOnce) {
  RunAll();
  state_.members[2].process.connected = false;
  state_.members[2].process.broken_at = now_;
  EXPECT_EQ(Now().action, Action::kWait);
  state_.members[2].process.gone = true;
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_EQ(d.member, 2);
  EXPECT_EQ(d.reason,
            "worker 1 on host node-2 (step 5, forward): lost: its connection broke and its port "
            "refuses connections, the process is gone");
}

TEST_F(DecisionTest, ABrokenSessionMayResumeWithinItsDeadline) {
  RunAll();
  state_.members[2].process.connected = false;
  state_.members[2].process.broken_at = now_;
  Pass(options_.resume - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  state_.members[2].process.connected = true;
  Pass(seconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  state_.members[2].process.connected = false;
  state_.members[2].process.broken_at = now_;
  Pass(options_.resume);
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
  EXPECT_EQ(Now().member, 2);
}

TEST_F(DecisionTest, SilenceIsLossAfterTheHeartbeatDeadline) {
  RunAll();
  Pass(options_.heartbeat - milliseconds(1), 1);
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(milliseconds(1), 1);
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_EQ(d.member, 1);
  EXPECT_THAT(d.reason, HasSubstr("no heartbeat for 10.0 s"));
}

TEST_F(DecisionTest, OfSeveralTheOneLostFirstIsTheCause) {
  RunAll();
  for (int i : {1, 2}) {
    state_.members[i].process.connected = false;
    state_.members[i].process.gone = true;
    state_.members[i].process.broken_at = now_ - milliseconds(i);
  }
  EXPECT_EQ(Now().member, 2);
}

TEST_F(DecisionTest, ALateDeciderJudgesNobodyForItsOwnGap) {
  MonotonicTime world{std::chrono::hours(1)};
  PausingClock clock(seconds(1), world);
  now_ = clock.At(world);
  RunAll();
  EXPECT_EQ(Decide(now_ + seconds(30), state_, options_).action, Action::kAbortGeneration);
  now_ = clock.At(world += seconds(30));  // stopped: nobody's heartbeat was read
  EXPECT_EQ(Now().action, Action::kWait);
  // From there on the deadlines run as ever.
  for (int i = 0; i < 99; ++i) now_ = clock.At(world += milliseconds(100));
  EXPECT_EQ(Now().action, Action::kWait);
  now_ = clock.At(world += milliseconds(100));
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
}

TEST_F(DecisionTest, EachPhaseHasItsDeadline) {
  RunAll();
  options_.phase[static_cast<int>(Phase::kForward)] = seconds(60);
  options_.phase[static_cast<int>(Phase::kSave)] = seconds(600);
  state_.members[0].report.phase = Phase::kSave;
  state_.members[1].report.phase_since = now_ - seconds(10);
  Pass(seconds(50));
  const Decision d = Now();
  EXPECT_EQ(d.verdict.task, "worker:0");
  EXPECT_THAT(d.verdict.message,
              HasSubstr("in phase 'forward' for 60.0 s; timeouts.phase.forward is 60 s"));
}

TEST_F(DecisionTest, AWaitInReduceIsBlamedOnTheOneThatDoesNotCome) {
  RunAll();
  options_.phase[static_cast<int>(Phase::kReduce)] = seconds(60);
  state_.members[0].report.phase = state_.members[1].report.phase = Phase::kReduce;
  state_.members[2].report.phase = Phase::kData;
  Pass(seconds(60));
  EXPECT_EQ(Now().verdict.task, "worker:1");
  // All wait: the first of them is named, with the deadline.
  state_.members[2].report.phase = Phase::kReduce;
  EXPECT_EQ(Now().verdict.task, "chief:0");
  // One waits in the reduction of the step before: it is behind.
  state_.members[1].report.step = 4;
  EXPECT_EQ(Now().verdict.task, "worker:0");
}

TEST_F(DecisionTest, AMemberThatWaitsForAGenerationHasNoPhaseDeadline) {
  Join(0);
  options_.phase[static_cast<int>(Phase::kStarting)] = seconds(60);
  Pass(seconds(61));
  EXPECT_EQ(Now().action, Action::kWait);
  state_.members[0].report.waiting = false;
  EXPECT_EQ(Now().action, Action::kEndJob);
}

TEST_F(DecisionTest, TheFirstOwnFailureIsTheVerdict) {
  RunAll();
  state_.members[0].failure =
      ReportedFailure{ExitCode::kProgramFailed, "second", "node-0", 5, Phase::kForward, now_};
  state_.members[2].failure = ReportedFailure{ExitCode::kDataDamaged, "first",          "node-2", 4,
                                              Phase::kData,           now_ - seconds(1)};
  state_.members[1].process.connected = false;
  state_.members[1].process.gone = true;
  const Decision d = Now();
  EXPECT_EQ(d.verdict.code, ExitCode::kDataDamaged);
  EXPECT_EQ(Describe(d.verdict), "worker 1 on host node-2 (step 4, data): first");
}

TEST_F(DecisionTest, CollectiveErrorsWaitForTheRootCause) {
  RunAll();
  state_.members[0].report.collective_error = ReportedError{1, "worker:1: connection reset", now_};
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(options_.root_cause_wait - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(milliseconds(1));
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_EQ(d.member, -1);
  EXPECT_EQ(d.reason, "worker:1: connection reset");
}

TEST_F(DecisionTest, WhoIsSilentWhileCollectivesFailIsTheCause) {
  RunAll();
  state_.members[0].report.collective_error = ReportedError{1, "worker:1: timed out", now_};
  Pass(options_.suspect, 2);
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_EQ(d.member, 2);
  EXPECT_THAT(d.reason, HasSubstr("while others could not reach it"));
}

TEST_F(DecisionTest, ErrorsOfAnOldGenerationAreOld) {
  RunAll();
  state_.generation = 2;
  state_.members[0].report.collective_error = ReportedError{1, "reset", now_};
  Pass(options_.root_cause_wait);
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(DecisionTest, EndsWhenAllHaveFinished) {
  RunAll();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Now().action, Action::kWait);
    state_.members[i].report.finished = true;
    state_.members[i].report.finished_at = now_;
    state_.members[i].report.last_step = 500;
  }
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kEndJob);
  EXPECT_EQ(d.verdict.code, ExitCode::kDone);
  for (MemberInfo& m : state_.members) m.report.outcome = ExitCode::kPreempted;
  EXPECT_EQ(Now().verdict.code, ExitCode::kPreempted);
}

TEST_F(DecisionTest, LoopsThatEndAtDifferentStepsAreAProgramError) {
  RunAll();
  for (int i : {0, 1}) {
    state_.members[i].report.finished = true;
    state_.members[i].report.finished_at = now_ + milliseconds(i);
    state_.members[i].report.last_step = 500 + i;
  }
  const Decision d = Now();
  EXPECT_EQ(d.verdict.code, ExitCode::kProgramFailed);
  EXPECT_THAT(d.verdict.message, HasSubstr("step 501"));
}

TEST_F(DecisionTest, WhoDoesNotFinishIsNamedUnlessItSavesOrEvaluates) {
  RunAll();
  for (int i : {0, 1}) {
    state_.members[i].report.finished = true;
    state_.members[i].report.finished_at = now_;
  }
  state_.members[2].report.phase = Phase::kSave;
  Pass(options_.end);
  EXPECT_EQ(Now().action, Action::kWait);
  state_.members[2].report.phase = Phase::kForward;
  state_.members[2].report.phase_since = now_;
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(options_.end);
  EXPECT_EQ(Now().verdict.task, "worker:1");
}

TEST_F(DecisionTest, MembersThatWaitForALongSaveAreNotTheCauseAndTheSaveHasItsOwnDeadline) {
  RunAll();
  options_.phase[static_cast<int>(Phase::kEnding)] = seconds(120);
  options_.phase[static_cast<int>(Phase::kReduce)] = seconds(660);
  options_.phase[static_cast<int>(Phase::kSave)] = seconds(1800);
  state_.members[0].report.phase = Phase::kSave;
  for (int i : {1, 2}) {
    state_.members[i].report.phase = Phase::kEnding;
    state_.members[i].report.finished = true;
    state_.members[i].report.finished_at = now_;
    state_.members[i].report.outcome = ExitCode::kPreempted;
  }
  Pass(seconds(1799));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(seconds(1));
  const Decision d = Now();
  EXPECT_EQ(d.verdict.task, "chief:0");
  EXPECT_THAT(d.verdict.message,
              HasSubstr("in phase 'save' for 1800.0 s; timeouts.phase.save is 1800 s"));
}

TEST_F(DecisionTest, ClosesWhenAllHaveAcknowledgedOrTheDeadlineNamesWhoDidNot) {
  RunAll();
  state_.stage = JobStage::kEnding;
  state_.stage_since = now_;
  state_.members[0].report.acknowledged = true;
  state_.members[1].process.connected = false;  // has left
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(options_.end);
  EXPECT_EQ(Now().action, Action::kClose);
  EXPECT_THAT(Now().reason, HasSubstr("worker 1"));
  state_.stage_since = now_;
  state_.verdict.code = ExitCode::kRetryable;  // a failed job says goodbye quickly
  Pass(options_.failure_ack_timeout);
  EXPECT_EQ(Now().action, Action::kClose);
  state_.stage_since = now_;
  state_.members[2].report.acknowledged = true;
  EXPECT_EQ(Now().action, Action::kClose);
}

TEST_F(DecisionTest, TheEndWaitsForASessionThatBrokeJustBefore) {
  RunAll();
  state_.stage = JobStage::kEnding;
  state_.stage_since = now_;
  for (MemberInfo& m : state_.members) m.report.acknowledged = true;
  state_.members[1].report.acknowledged = false;
  state_.members[1].process.connected = false;  // the link broke in the last step
  state_.members[1].process.broken_at = now_;
  Pass(options_.resume - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  EXPECT_THAT(Now().reason, HasSubstr("worker 0"));
  state_.members[1].process.gone = true;  // it has left instead
  EXPECT_EQ(Now().action, Action::kClose);
  state_.members[1].process.gone = false;
  Pass(milliseconds(1));
  EXPECT_EQ(Now().action, Action::kClose);
}

TEST_F(DecisionTest, TheNewestStateIsTheHighestStepsThenTheLowestRanks) {
  JoinAll();
  EXPECT_EQ(NewestMember(state_, {0, 1, 2}), 0);
  state_.members[1].report.last_step = state_.members[2].report.last_step = 7;
  EXPECT_EQ(NewestMember(state_, {0, 1, 2}), 1);
  EXPECT_EQ(NewestMember(state_, {0, 2}), 2);
}

}  // namespace
}  // namespace muster::chief
