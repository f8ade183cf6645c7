// The members of a parameter-server job: each on its own.
#include <gmock/gmock.h>

#include "chief/decision/decision.h"

namespace muster::chief {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int kWorker0 = 0, kWorker1 = 1, kPs0 = 2, kPs1 = 3;

class IndependentTest : public ::testing::Test {
 protected:
  IndependentTest() {
    options_.independent = true;
    options_.rejoin = seconds(60);
    state_.started = state_.stage_since = now_;
    for (const char* task : {"worker:0", "worker:1", "ps:0", "ps:1"}) {
      MemberInfo m;
      m.declared.task = *ParseTaskId(task);
      m.declared.address = std::string(task) + ".example:2222";
      state_.members.push_back(m);
    }
  }
  void Join(int i, bool again = false) {
    MemberInfo& m = state_.members[i];
    m.process.joined = m.process.connected = m.report.waiting = true;
    m.process.again = again;
    m.process.last_heard = m.report.phase_since = now_;
    if (again) state_.adopted_size = 1;
  }
  // Acts like the coordinator.
  void Admit(int i) {
    MemberInfo& m = state_.members[i];
    if (state_.stage == JobStage::kJoining) state_.stage_since = now_;
    state_.stage = JobStage::kRunning;
    m.process.generation = m.report.formed_generation = ++state_.generation;
    m.in_generation = true;
    m.report.waiting = false;
    m.report.phase = Phase::kForward;
    if (i >= kPs0) state_.servers_since = now_;
  }
  void Drop(int i) {
    MemberInfo absent;
    absent.declared.task = state_.members[i].declared.task;
    absent.abandoned = state_.members[i].abandoned;
    absent.why_missing = "lost: gone";
    absent.missing_since = now_;
    state_.members[i] = absent;
  }
  void RunAll() {
    for (int i = 0; i < 4; ++i) Join(i);
    for (int i = 0; i < 4; ++i) Admit(i);
  }
  void Pass(Duration d, int silent = -1) {
    now_ += d;
    for (int i = 0; i < 4; ++i)
      if (i != silent) state_.members[i].process.last_heard = now_;
  }
  Decision Now() { return Decide(now_, state_, options_); }
  void ExpectForm(int member) {
    const Decision decision = Now();
    EXPECT_EQ(decision.action, Action::kForm) << decision.reason;
    EXPECT_EQ(decision.member, member);
  }

  PausingTime now_{std::chrono::hours(1)};
  JobState state_;
  MembershipOptions options_{{.phase = {}}};  // No phase has a limit.
};

TEST_F(IndependentTest, NobodyIsInBeforeAllHaveCome) {
  Join(kWorker0);
  Join(kPs0);
  Join(kPs1);
  EXPECT_EQ(Now().action, Action::kWait);
  EXPECT_THAT(Now().reason, HasSubstr("3/4 joined, missing worker 1"));
  Join(kWorker1);
  for (int i = 0; i < 4; ++i) {
    ExpectForm(i);
    Admit(i);
  }
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(IndependentTest, WhoDoesNotComeInTimeEndsTheJob) {
  Join(kWorker0);
  now_ += options_.join;
  state_.members[kWorker0].process.last_heard = now_;
  const Decision decision = Now();
  EXPECT_EQ(decision.action, Action::kEndJob);
  EXPECT_THAT(decision.verdict.message, HasSubstr("timeouts.join"));
}

TEST_F(IndependentTest, ALostMemberIsDroppedAndNobodyElseDisturbed) {
  RunAll();
  Pass(options_.heartbeat, kPs0);
  const Decision decision = Now();
  EXPECT_EQ(decision.action, Action::kDrop);
  EXPECT_EQ(decision.member, kPs0);
  EXPECT_FALSE(decision.expel);
  Drop(kPs0);
  EXPECT_EQ(Now().action, Action::kWait);
  EXPECT_THAT(RosterLine(now_, state_), HasSubstr("3/4 joined, missing ps 0 ("));
  Join(kPs0);  // a new process
  ExpectForm(kPs0);
}

TEST_F(IndependentTest, AMemberWithoutProgressIsExpelled) {
  options_.phase[static_cast<int>(Phase::kForward)] = seconds(5);
  RunAll();
  for (MemberInfo& m : state_.members) m.report.phase = Phase::kData;
  state_.members[kWorker1].report.phase = Phase::kForward;
  Pass(seconds(5));
  const Decision decision = Now();
  EXPECT_EQ(decision.action, Action::kDrop);
  EXPECT_EQ(decision.member, kWorker1);
  EXPECT_TRUE(decision.expel);
  EXPECT_THAT(decision.verdict.message, HasSubstr("in phase 'forward' for 5.0 s"));
}

TEST_F(IndependentTest, WhoWaitsForAServerThatIsNotThereIsNotBlamed) {
  options_.phase[static_cast<int>(Phase::kReduce)] = seconds(5);
  RunAll();
  state_.members[kWorker0].report.phase = Phase::kReduce;
  Drop(kPs1);
  Pass(seconds(10));
  EXPECT_EQ(Now().action, Action::kWait);
  Join(kPs1);
  Admit(kPs1);
  state_.members[kPs1].report.phase = Phase::kData;
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(seconds(5));
  EXPECT_EQ(Now().member, kWorker0);
}

TEST_F(IndependentTest, AServerIsNeededAWorkerOnlyIfNoneIsLeft) {
  RunAll();
  Drop(kWorker0);
  Pass(options_.rejoin * 2);
  EXPECT_EQ(Now().action, Action::kWait);
  Drop(kWorker1);
  Pass(options_.rejoin - seconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(seconds(1));
  Decision decision = Now();
  EXPECT_EQ(decision.action, Action::kEndJob);
  EXPECT_EQ(decision.verdict.code, ExitCode::kRetryable);
  EXPECT_THAT(decision.verdict.message, HasSubstr("no process took its place within 60 s"));
}

TEST_F(IndependentTest, AServerThatStaysAwayEndsTheJobUnlessAnotherHoldsTheSame) {
  RunAll();
  Drop(kPs1);
  Pass(options_.rejoin);
  EXPECT_EQ(Now().action, Action::kEndJob);
  EXPECT_EQ(Now().verdict.task, "ps:1");
  options_.spare_servers = 1;
  EXPECT_EQ(Now().action, Action::kWait);
  Drop(kPs0);
  EXPECT_EQ(Now().action, Action::kWait);  // counted from when they became too few
  Pass(options_.rejoin);
  EXPECT_EQ(Now().action, Action::kEndJob);
  EXPECT_EQ(Now().verdict.task, "ps:1");  // the first
}

TEST_F(IndependentTest, AProcessThatIsNotRestartedIsNotAwaited) {
  RunAll();
  state_.members[kWorker0].abandoned = "was killed by SIGKILL, and nobody starts it again";
  Drop(kWorker0);
  EXPECT_EQ(Now().action, Action::kWait);
  state_.members[kPs0].abandoned = "was killed by SIGKILL, and nobody starts it again";
  Drop(kPs0);
  const Decision decision = Now();
  EXPECT_EQ(decision.action, Action::kEndJob);
  EXPECT_EQ(decision.verdict.task, "ps:0");
  EXPECT_THAT(decision.verdict.message, HasSubstr("nobody starts it again"));
}

TEST_F(IndependentTest, ARestartedChiefTakesInWhoHoldsStateAtOnceAndNewOnesALittleLater) {
  Join(kPs0);
  EXPECT_EQ(Now().action, Action::kWait);
  Join(kWorker0, /*again=*/true);
  ExpectForm(kWorker0);
  Admit(kWorker0);
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(options_.stateless_wait);
  ExpectForm(kPs0);
}

TEST_F(IndependentTest, AMemberMayAskForAnotherGeneration) {
  RunAll();
  state_.members[kWorker1].report.waiting = true;
  ExpectForm(kWorker1);
  Admit(kWorker1);
  // A report from before it heard of that.
  state_.members[kWorker1].report.waiting = true;
  state_.members[kWorker1].report.formed_generation = 2;
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(IndependentTest, AnOwnFailureEndsTheJob) {
  RunAll();
  state_.members[kWorker1].failure =
      ReportedFailure{ExitCode::kProgramFailed, "a bug", "h", 7, Phase::kForward, now_};
  EXPECT_EQ(Now().action, Action::kEndJob);
  EXPECT_EQ(Now().verdict.code, ExitCode::kProgramFailed);
}

TEST_F(IndependentTest, AStopBeforeTheFirstStepIsTheEnd) {
  Join(kWorker0);
  state_.stop_requested = true;
  EXPECT_EQ(Now().action, Action::kEndJob);
  EXPECT_EQ(Now().verdict.code, ExitCode::kPreempted);
}

}  // namespace
}  // namespace muster::chief
