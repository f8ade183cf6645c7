// An elastic job whose members come one after the other, or come and are lost again.
#include <gmock/gmock.h>

#include "chief/decision/decision.h"

namespace muster::chief {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Chief and six workers, of which the first four are in step 50 of generation 1.
class FlappingTest : public ::testing::Test {
 protected:
  FlappingTest() {
    options_.min_members = 2;
    state_.started = state_.stage_since = now_;
    state_.stage = JobStage::kRunning;
    state_.generation = 1;
    for (const char* task :
         {"chief:0", "worker:0", "worker:1", "worker:2", "worker:3", "worker:4", "worker:5"}) {
      MemberInfo m;
      m.declared.task = *ParseTaskId(task);
      state_.members.push_back(m);
    }
    for (int i = 0; i < 4; ++i) {
      MemberInfo& m = state_.members[i];
      m.process.joined = m.process.connected = m.in_generation = m.process.settled = true;
      m.report.formed_generation = 1;
      m.report.step = 50;
      m.process.last_heard = m.report.phase_since = now_;
    }
  }
  // Its process says Hello; `ready`: it waits for a generation.
  void Come(int i, bool ready) {
    MemberInfo& m = state_.members[i];
    if (ready && !m.report.waiting) m.report.waiting_since = now_;
    m.process.joined = m.process.connected = true;
    m.report.waiting = ready;
    m.process.first_step = 50;  // which the others are in
    m.process.last_heard = m.report.phase_since = now_;
  }
  // Acts like the coordinator.
  void Form() {
    for (int n = 0; n < 7; ++n)
      if (state_.members[n].in_generation && state_.members[n].process.joined) Come(n, true);
    state_.stage = JobStage::kJoining;
    const std::vector<int> next = NextMembers(now_, state_, options_);
    for (MemberInfo& m : state_.members) m.in_generation = false;
    for (int i : next) {
      state_.members[i].in_generation = true;
      state_.members[i].report.waiting = false;
    }
    state_.stage = JobStage::kRunning;
    state_.stage_since = now_;
    ++state_.generation;
    for (MemberInfo& m : state_.members) m.report.formed_generation = state_.generation;
  }
  void Lose(int i) {
    MemberInfo absent = Absent(now_, state_, state_.members[i], options_);
    absent.why_missing = "lost";
    absent.missing_since = now_;
    state_.members[i] = absent;
    state_.stage = JobStage::kJoining;
    state_.stage_since = now_;
    for (int n = 0; n < 7; ++n)
      if (n != i && state_.members[n].in_generation) Come(n, true);
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

TEST_F(FlappingTest, StaggeredNewMembersJoinInOneGeneration) {
  Come(4, true);
  EXPECT_EQ(Now().action, Action::kWait);  // others may be close behind
  Pass(options_.gather - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Come(5, false);  // it is, and builds its datasets
  Pass(options_.gather);
  EXPECT_EQ(Now().action, Action::kWait);
  Come(5, true);
  Pass(options_.gather - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(milliseconds(1));
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kAbortGeneration);
  EXPECT_EQ(d.reason, "a new generation includes worker 3, worker 4");
}

TEST_F(FlappingTest, TheLastOneThatIsMissingIsTakenInAtOnce) {
  for (int i : {4, 5, 6}) Come(i, true);
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
}

TEST_F(FlappingTest, WhoIsReadyDoesNotWaitForASlowOneForLong) {
  Come(4, true);
  Come(5, false);
  Pass(options_.gather_most - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(milliseconds(1));
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
  EXPECT_EQ(Now().reason, "a new generation includes worker 3");
}

TEST_F(FlappingTest, NobodyWaitsForOneThatWasLostInItsFirstStep) {
  Come(4, true);
  Pass(options_.gather);
  Form();
  EXPECT_TRUE(state_.members[4].in_generation);
  Lose(4);
  const Decision d = Now();
  EXPECT_EQ(d.action, Action::kForm) << d.reason;
  EXPECT_EQ(d.reason, "4 of 7 members continue");
  EXPECT_THAT(NextMembers(now_, state_, options_), ElementsAre(0, 1, 2, 3));
}

TEST_F(FlappingTest, OneThatHadTrainedIsWaitedForTheGrace) {
  Lose(3);
  EXPECT_EQ(Now().action, Action::kWait);
  EXPECT_EQ(state_.members[3].quick_losses, 0);
  Pass(options_.grace);
  EXPECT_EQ(Now().action, Action::kForm);
}

TEST_F(FlappingTest, EachQuickLossDoublesTheTimeUntilItIsTakenInAgain) {
  Duration wait = Duration::zero();
  for (int n = 1; n <= 5; ++n) {
    Come(4, true);
    Pass(std::max(wait, options_.gather) - milliseconds(1));
    EXPECT_EQ(Now().action, Action::kWait) << n;
    Pass(milliseconds(1));
    ASSERT_EQ(Now().action, Action::kAbortGeneration) << n;
    Form();
    Lose(4);
    EXPECT_EQ(state_.members[4].quick_losses, n);
    EXPECT_EQ(Now().action, Action::kForm) << n;
    Form();
    wait = n == 1 ? Duration::zero() : n == 2 ? options_.backoff : 2 * wait;
  }
  // Never for longer than that.
  for (int n = 0; n < 40; ++n) {
    Come(4, true);
    state_.members[4].in_generation = true;
    Lose(4);
  }
  EXPECT_EQ(state_.members[4].backoff_until, now_ + options_.max_backoff);
}

TEST_F(FlappingTest, OneThatGotThroughItsFirstStepsIsTrustedAgain) {
  for (int n = 0; n < 3; ++n) {
    Come(4, true);
    state_.members[4].in_generation = true;
    Lose(4);
  }
  Come(4, true);
  state_.members[4].in_generation = state_.members[4].process.settled = true;
  Lose(4);
  EXPECT_EQ(state_.members[4].quick_losses, 0);
  EXPECT_LE(state_.members[4].backoff_until, now_);
}

// Its last heartbeat is of its first step, those of the others tell that all are beyond it.
TEST_F(FlappingTest, OneThatCameThroughAStepIsAwaitedWhateverItSaidLast) {
  Come(4, true);
  state_.members[4].in_generation = true;
  state_.members[4].report.step = 50;
  state_.members[0].report.step = 51;
  Lose(4);
  EXPECT_EQ(state_.members[4].quick_losses, 0);
}

// The member is needed: the others are too few to continue.
TEST_F(FlappingTest, OneThatIsNeededIsTakenInWhateverItDid) {
  options_.min_members = 5;
  for (int n = 0; n < 3; ++n) {
    Come(4, true);
    state_.members[4].in_generation = true;
    Lose(4);
  }
  for (int i : {5, 6}) state_.members[i].left = true;
  EXPECT_EQ(Now().action, Action::kWait);
  Come(4, true);
  EXPECT_EQ(Now().action, Action::kForm) << Now().reason;
  EXPECT_THAT(NextMembers(now_, state_, options_), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(FlappingTest, WhoIsLostBeforeItWasTakenInCostsNothing) {
  Come(4, false);
  Lose(4);
  EXPECT_EQ(state_.members[4].quick_losses, 0);
}

TEST_F(FlappingTest, WithoutElasticAllAreWaitedForAsEver) {
  options_.min_members = 0;
  for (int i : {4, 5, 6}) Come(i, true);
  for (int i : {0, 1, 2, 3}) Come(i, true);
  state_.stage = JobStage::kJoining;
  state_.members[4].in_generation = true;
  Lose(4);
  EXPECT_LE(state_.members[4].backoff_until, now_);
  EXPECT_EQ(Now().action, Action::kWait);
  for (int i = 0; i < 7; ++i) Come(i, true);
  EXPECT_EQ(Now().action, Action::kForm);
}

}  // namespace
}  // namespace muster::chief
