// Tests each difference between members that train together and independent ones.
#include "chief/decision/membership_policy.h"

#include <gmock/gmock.h>

namespace muster::chief {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kGeneration = 7;

class MembershipPolicyTest : public ::testing::Test {
 protected:
  // All are in generation 7, running.
  MembershipPolicyTest() {
    state_.stage = JobStage::kRunning;
    state_.generation = kGeneration;
    int incarnation = 100;
    for (const char* task : {"worker:0", "worker:1", "ps:0"}) {
      MemberInfo m;
      m.declared.task = *ParseTaskId(task);
      m.process.joined = m.process.connected = m.in_generation = true;
      m.process.incarnation = m.admitted = ++incarnation;
      m.process.generation = kGeneration;
      m.process.last_heard = now_;
      m.report.last_step = incarnation - 100;
      state_.members.push_back(m);
    }
    options_.independent = true;
    independent_ = MembershipPolicy::Of(options_);
    options_.independent = false;
    together_ = MembershipPolicy::Of(options_);
  }
  // Back to before the first generation, all ready.
  void Begin() {
    state_.stage = JobStage::kJoining;
    state_.generation = 0;
    for (MemberInfo& m : state_.members) {
      m.in_generation = false;
      m.process.generation = 0;
      m.report.waiting = true;
    }
  }

  const PausingTime now_{std::chrono::hours(1)};
  JobState state_;
  MembershipOptions options_{{.phase = {}}};  // No phase has a limit.
  std::unique_ptr<MembershipPolicy> together_, independent_;
};

TEST_F(MembershipPolicyTest, TogetherOneGenerationIsFormedOfAllThatAreReady) {
  Begin();
  const NewGeneration formed = together_->Form(now_, 9, -1, &state_);
  EXPECT_EQ(formed.id, 9u);
  EXPECT_THAT(formed.members, ElementsAre(0, 1, 2));
  EXPECT_EQ(formed.newest, 2);
  EXPECT_FALSE(formed.started);
  EXPECT_EQ(state_.stage, JobStage::kForming);
  EXPECT_EQ(state_.generation, 9u);
  for (const MemberInfo& m : state_.members) {
    EXPECT_TRUE(m.in_generation);
    EXPECT_FALSE(m.report.waiting);
    EXPECT_EQ(m.process.first_step, 4);  // after the newest state
    EXPECT_EQ(together_->GenerationOf(state_, m), 9u);
  }
}

TEST_F(MembershipPolicyTest, IndependentEachFormsOneOfItsOwnAndStarts) {
  Begin();
  NewGeneration formed = independent_->Form(now_, 9, 1, &state_);
  EXPECT_THAT(formed.members, ElementsAre(1));
  EXPECT_TRUE(formed.started);
  EXPECT_FALSE(formed.again);
  EXPECT_EQ(state_.stage, JobStage::kRunning);
  EXPECT_TRUE(state_.members[1].in_generation);
  EXPECT_FALSE(state_.members[0].in_generation);
  EXPECT_EQ(independent_->Form(now_, 10, 2, &state_).newest, 2);
  EXPECT_EQ(state_.servers_since, now_);
  EXPECT_EQ(independent_->GenerationOf(state_, state_.members[1]), 9u);
  EXPECT_EQ(independent_->GenerationOf(state_, state_.members[2]), 10u);
  EXPECT_TRUE(independent_->Form(now_, 11, 1, &state_).again);
}

TEST_F(MembershipPolicyTest, AReplacedProcessEndsTheGenerationOfAllOnlyTogether) {
  EXPECT_EQ(together_->Replace(1, &state_), "worker 1 was lost: a new process took its place");
  EXPECT_TRUE(state_.members[1].in_generation);  // it is missed
  EXPECT_EQ(independent_->Replace(1, &state_), "");
  EXPECT_FALSE(state_.members[1].in_generation);
  EXPECT_EQ(state_.members[1].admitted, 0u);
  EXPECT_EQ(together_->Replace(1, &state_), "");  // nobody misses it
  state_.stage = JobStage::kJoining;
  EXPECT_EQ(together_->Replace(0, &state_), "");
}

TEST_F(MembershipPolicyTest, AProcessThatGaveItsGenerationUpEndsItOnlyTogether) {
  const ReturningProcess left{.highest_generation = kGeneration, .holds_state = true};
  EXPECT_EQ(together_->Return(left, 1, &state_),
            "worker 1 had lost its connection to the chief and left the generation");
  EXPECT_EQ(
      together_->Return({.generation = kGeneration, .highest_generation = kGeneration}, 1, &state_),
      "");
  // It has not heard of this one yet: the formation is sent again.
  EXPECT_EQ(together_->Return({.highest_generation = kGeneration - 1}, 1, &state_), "");
  EXPECT_EQ(independent_->Return({.generation = kGeneration}, 1, &state_), "");
  EXPECT_TRUE(state_.members[1].in_generation);
  EXPECT_EQ(independent_->Return(left, 1, &state_), "");
  EXPECT_FALSE(state_.members[1].in_generation);
  EXPECT_TRUE(state_.members[1].process.again);
}

TEST_F(MembershipPolicyTest, TheLostOneIsMissedInItsGenerationOnlyTogether) {
  EXPECT_TRUE(together_->Absent(now_, state_, state_.members[1]).in_generation);
  const MemberInfo absent = independent_->Absent(now_, state_, state_.members[1]);
  EXPECT_FALSE(absent.in_generation);
  EXPECT_FALSE(absent.process.joined);
  EXPECT_EQ(absent.admitted, 0u);
  EXPECT_EQ(absent.missing_since, now_);
}

TEST_F(MembershipPolicyTest, WhoGoesOnWithoutADeadMember) {
  EXPECT_FALSE(together_->ContinueWithout(1, "killed", &state_));
  options_.min_members = 2;
  EXPECT_TRUE(MembershipPolicy::Of(options_)->ContinueWithout(1, "killed", &state_));
  EXPECT_EQ(state_.members[1].abandoned, "");
  EXPECT_TRUE(independent_->ContinueWithout(1, "killed", &state_));
  EXPECT_EQ(state_.members[1].abandoned, "killed");
  Begin();  // all have to come once
  EXPECT_FALSE(independent_->ContinueWithout(0, "killed", &state_));
  EXPECT_EQ(state_.members[0].abandoned, "");
}

TEST_F(MembershipPolicyTest, WhoseRestartIsAwaited) {
  EXPECT_FALSE(together_->WaitsForRestart(state_.members[1]));
  EXPECT_TRUE(independent_->WaitsForRestart(state_.members[1]));
  state_.members[1].process.joined = false;
  EXPECT_TRUE(together_->WaitsForRestart(state_.members[1]));
}

TEST_F(MembershipPolicyTest, WhenTheJobIsHeldUp) {
  EXPECT_FALSE(together_->IsHeldUp(state_));
  EXPECT_FALSE(independent_->IsHeldUp(state_));
  for (const int i : {0, 2}) state_.members[i].in_generation = false;
  EXPECT_FALSE(together_->IsHeldUp(state_));
  EXPECT_TRUE(independent_->IsHeldUp(state_));
  state_.members[2].abandoned = "killed";
  EXPECT_FALSE(independent_->IsHeldUp(state_)) << "a worker that is missing holds nobody up";
  state_.stage = JobStage::kJoining;
  EXPECT_TRUE(together_->IsHeldUp(state_));
  EXPECT_TRUE(independent_->IsHeldUp(state_));
}

}  // namespace
}  // namespace muster::chief
