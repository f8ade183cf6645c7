// A job of four members, one of which is a spare.
#include <gmock/gmock.h>

#include "chief/decision/decision.h"
#include "chief/decision/membership_policy.h"

namespace muster::chief {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SparesTest : public ::testing::Test {
 protected:
  // The first three are in step 5 of generation 1, the last one waits.
  SparesTest() {
    options_.spares = 1;
    state_.started = state_.stage_since = now_;
    state_.stage = JobStage::kRunning;
    state_.generation = 1;
    for (const char* task : {"chief:0", "worker:0", "worker:1", "worker:2"}) {
      MemberInfo m;
      m.declared.task = *ParseTaskId(task);
      m.process.joined = m.process.connected = m.in_generation = true;
      m.process.last_generation = 1;
      m.process.last_heard = m.report.phase_since = now_;
      m.report.formed_generation = 1;
      m.report.phase = Phase::kForward;
      m.report.step = 5;
      m.report.last_step = 4;
      state_.members.push_back(m);
    }
    MemberInfo& spare = state_.members[3];
    spare.in_generation = false;
    spare.process.last_generation = 0;
    spare.report = {};
    Wait(3);
    Pass(options_.survivors);
  }
  void Wait(int i) {
    MemberInfo& m = state_.members[i];
    m.process.joined = m.process.connected = m.report.waiting = true;
    m.process.gone = false;
    m.report.waiting_since = m.process.last_heard = now_;
  }
  // The coordinator's part when the process of a member of the generation is lost.
  void Lose(int i) {
    MemberInfo absent = Absent(now_, state_, state_.members[i], options_);
    absent.why_missing = "lost";
    state_.members[i] = absent;
    state_.stage = JobStage::kJoining;
    state_.stage_since = now_;
  }
  // Before the first generation of this chief, with nobody there.
  void Begin() {
    state_.stage = JobStage::kJoining;
    state_.generation = 0;
    for (MemberInfo& m : state_.members) {
      m.in_generation = false;
      m.process = {};
      m.report = {};
    }
  }
  void Pass(Duration d) {
    now_ += d;
    for (MemberInfo& m : state_.members) m.process.last_heard = now_;
  }
  Decision Now() { return Decide(now_, state_, options_); }
  std::vector<int> Next() { return NextMembers(now_, state_, options_); }

  PausingTime now_{std::chrono::hours(1)};
  JobState state_;
  MembershipOptions options_{{.phase = {}}};  // No phase has a limit.
};

TEST_F(SparesTest, ASpareIsNotTakenInWhileNobodyIsMissing) {
  Pass(options_.gather_most * 2);
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(SparesTest, ASpareReplacesALostMemberAtOnce) {
  Lose(1);
  EXPECT_EQ(Now().action, Action::kWait);  // The two others are on their way.
  Wait(0);
  EXPECT_EQ(Now().action, Action::kWait);
  Wait(2);
  const Decision decision = Now();
  EXPECT_EQ(decision.action, Action::kForm);
  EXPECT_EQ(decision.reason, "3 of 4 members are ready, and 3 train (elastic.spares is 1)");
  EXPECT_THAT(Next(), ElementsAre(0, 2, 3));
}

TEST_F(SparesTest, AReplacementThatComesBeforeTheSurvivorsIsTheNextSpare) {
  Lose(1);
  Pass(milliseconds(1));
  Wait(1);
  ASSERT_TRUE(state_.members[1].in_generation) << "others wait for this task";
  Wait(0);
  EXPECT_EQ(Now().action, Action::kWait) << "worker 1 is on its way";
  Wait(2);
  EXPECT_EQ(Now().action, Action::kForm);
  EXPECT_THAT(Next(), ElementsAre(0, 2, 3));
  // Nobody waits for a replacement that still builds its program.
  state_.members[1].report.waiting = false;
  EXPECT_EQ(Now().action, Action::kForm);
}

TEST_F(SparesTest, AReplacedMemberIsTheNextSpare) {
  Lose(1);
  for (const int i : {0, 2}) Wait(i);
  MembershipPolicy::Of(options_)->Form(now_, 2, -1, &state_);
  state_.stage = JobStage::kRunning;
  Wait(1);
  Pass(options_.gather_most * 2);
  EXPECT_EQ(Now().action, Action::kWait);
  Lose(3);
  for (const int i : {0, 2}) Wait(i);
  EXPECT_THAT(Next(), ElementsAre(0, 1, 2));
}

TEST_F(SparesTest, MembersOfTheLastGenerationArePreferred) {
  // Worker 0 is the spare, and the generation ended without a loss.
  std::swap(state_.members[1].in_generation, state_.members[3].in_generation);
  std::swap(state_.members[1].process.last_generation, state_.members[3].process.last_generation);
  state_.stage = JobStage::kJoining;
  for (const int i : {0, 1, 2}) Wait(i);
  state_.members[3].report.waiting = false;
  EXPECT_EQ(Now().action, Action::kWait) << "worker 2 is on its way";
  Wait(3);
  EXPECT_EQ(Now().action, Action::kForm);
  EXPECT_THAT(Next(), ElementsAre(0, 2, 3));
}

TEST_F(SparesTest, TwoLossesWaitForAReplacement) {
  Lose(1);
  Lose(2);
  Wait(0);
  Pass(options_.grace);
  EXPECT_EQ(Now().action, Action::kWait);
  Wait(2);
  EXPECT_EQ(Now().action, Action::kForm);
  EXPECT_THAT(Next(), ElementsAre(0, 2, 3));
}

TEST_F(SparesTest, ALostChiefHasNoSpare) {
  Lose(0);
  for (const int i : {1, 2}) Wait(i);
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(SparesTest, ALostSpareEndsNoGeneration) {
  state_.members[3].process.connected = false;
  state_.members[3].process.gone = true;
  EXPECT_EQ(Now().action, Action::kDrop);
}

TEST_F(SparesTest, AJobStartsWithoutTheSpareAfterAMoment) {
  Begin();
  state_.started = state_.stage_since = now_;
  for (const int i : {0, 1, 3}) Wait(i);
  Pass(options_.survivors - milliseconds(1));
  EXPECT_EQ(Now().action, Action::kWait);
  Pass(milliseconds(1));
  EXPECT_EQ(Now().action, Action::kForm);
  EXPECT_THAT(Next(), ElementsAre(0, 1, 3));
}

TEST_F(SparesTest, AJobStartsAtOnceWhenAllAreThere) {
  Begin();
  state_.started = state_.stage_since = now_;
  for (const int i : {0, 1, 2, 3}) Wait(i);
  EXPECT_EQ(Now().action, Action::kForm);
  EXPECT_THAT(Next(), ElementsAre(0, 1, 2));
}

TEST_F(SparesTest, ANewChiefTakesTheMembersThatHoldTheNewestState) {
  Begin();
  state_.adopted_size = 3;
  Pass(options_.survivors);
  for (const int i : {0, 1, 2, 3}) Wait(i);
  state_.members[2].report.last_step = 7;
  state_.members[3].report.last_step = 7;
  EXPECT_EQ(Now().action, Action::kForm);
  EXPECT_THAT(Next(), ElementsAre(0, 2, 3));
  // The coordinator waits for a member that holds state, although the others would be enough.
  state_.members[3].report.waiting = false;
  state_.members[3].process.again = true;
  EXPECT_EQ(Now().action, Action::kWait);
}

TEST_F(SparesTest, AMemberThatIsAskedToStopLeavesAloneIfASpareIsReady) {
  state_.members[2].report.leaving = true;
  Decision decision = Now();
  EXPECT_EQ(decision.action, Action::kAbortGeneration);
  EXPECT_EQ(decision.member, 2);
  EXPECT_TRUE(decision.expel);
  state_.members[3].report.waiting = false;  // The spare still builds its program.
  decision = Now();
  EXPECT_EQ(decision.action, Action::kStop);
  EXPECT_THAT(decision.reason, HasSubstr("worker 1 was asked to stop: all stop"));
}

TEST_F(SparesTest, ASpareThatIsAskedToStopLeaves) {
  state_.members[3].report.leaving = true;
  EXPECT_EQ(Now().action, Action::kDrop);
  EXPECT_TRUE(Now().expel);
}

TEST_F(SparesTest, AsManyTasksAsThereAreSparesMayEndForGood) {
  const auto policy = MembershipPolicy::Of(options_);
  const auto end = [&](int i) {
    state_.members[i].process.gone = true;
    return policy->ContinueWithout(i, "its process is gone", &state_);
  };
  EXPECT_TRUE(end(1));
  EXPECT_FALSE(end(2));
  Wait(1);  // Somebody has started worker 0 again.
  EXPECT_TRUE(end(2));
  EXPECT_FALSE(end(0)) << "the chief has no spare";
}

TEST_F(SparesTest, AnElasticJobFillsUpToItsFullSizeAlone) {
  options_.min_members = 2;
  options_.grace = seconds(0);
  Lose(1);
  Lose(3);
  for (const int i : {0, 2}) Wait(i);
  EXPECT_EQ(Now().action, Action::kForm);
  EXPECT_THAT(Next(), ElementsAre(0, 2));
  MembershipPolicy::Of(options_)->Form(now_, 2, -1, &state_);
  state_.stage = JobStage::kRunning;
  for (MemberInfo& m : state_.members) m.report.formed_generation = 2;
  Wait(1);
  Pass(options_.gather_most);
  EXPECT_EQ(Now().action, Action::kAbortGeneration);
  EXPECT_EQ(Now().reason, "a new generation includes worker 0");
}

}  // namespace
}  // namespace muster::chief
