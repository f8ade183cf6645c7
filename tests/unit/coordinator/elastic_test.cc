// Tests members that are asked to stop in a job whose other members may continue without them.
#include <gmock/gmock.h>

#include "absl/synchronization/notification.h"
#include "tests/unit/coordinator/harness.h"

namespace muster::chief::testing {
namespace {

using ::testing::HasSubstr;

class Elastic : public ::testing::Test {
 protected:
  void Start(int min_members) {
    CoordinatorOptions options = cluster_.coordinator_options();
    options.decision.min_members = min_members;
    options.decision.grace = std::chrono::minutes(3);  // nobody waits for one that leaves
    ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  }
  membership::MemberOptions member_options(int rank) {
    membership::MemberOptions options = cluster_.member_options(rank);
    options.may_leave = rank != 0;
    options.timeouts.report = std::chrono::milliseconds(500);
    return options;
  }
  // Joins generation after generation like the training loop, and sets `size` to the size of each.
  // Finishes at step 7 of a generation of `last` members, and stops at step 8 on request.
  Crew::Body Train(int last, std::atomic<int>* size) {
    return [=](membership::Member& member, Generation& first) -> absl::Status {
      Generation now = std::move(first);
      const int64_t step = 7;
      while (true) {
        *size = now.world_size();
        member.SetPhase(Phase::kReduce, step);
        while (now.world_size() != last && now.replicas[0]->status().ok() &&
               !member.StopRequested())
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        absl::Status end;
        if (member.StopRequested()) {
          end = member.Finish(8, Preempted("stopped on request"));
        } else if (now.world_size() == last) {
          end = member.Finish(step, absl::OkStatus());
        } else {
          end = member.Explain(now.replicas[0]->status());
        }
        if (member.JobEnded()) return end;
        now.replicas.clear();
        auto next = member.NextGeneration(step);
        if (!next.ok()) return next.status();
        now = *std::move(next);
      }
    };
  }
  static void Await(const std::atomic<int>& size, int wanted) {
    const MonotonicTime end = Clock::now() + kLimit;
    while (size != wanted && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_EQ(size, wanted);
  }

  TestCluster cluster_{3};
  std::atomic<int> sizes_[4] = {};
};

TEST_F(Elastic, AMemberThatIsAskedToStopLeavesAloneAndAtOnce) {
  Start(2);
  Crew crew;
  for (int rank = 0; rank < 4; ++rank) crew.Add(member_options(rank), Train(3, &sizes_[rank]));
  for (auto& size : sizes_) Await(size, 4);
  const MonotonicTime start = Clock::now();
  crew.member(2).RequestStop();
  crew.Join();
  EXPECT_LT(Clock::now() - start, kLimit);
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kDone);
  EXPECT_EQ(ExitCodeOf(crew.result(2)), ExitCode::kPreempted);
  EXPECT_THAT(std::string(Message(crew.result(2))), HasSubstr("the others continue without"));
  for (int rank : {0, 1, 3}) {
    EXPECT_TRUE(crew.result(rank).ok()) << Message(crew.result(rank));
    EXPECT_EQ(sizes_[rank], 3);
  }
}

TEST_F(Elastic, WhereTooFewWouldRemainAllStop) {
  Start(4);
  Crew crew;
  for (int rank = 0; rank < 4; ++rank) crew.Add(member_options(rank), Train(3, &sizes_[rank]));
  for (auto& size : sizes_) Await(size, 4);
  crew.member(2).RequestStop();
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kPreempted);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(ExitCodeOf(crew.result(rank)), ExitCode::kPreempted) << rank;
}

TEST_F(Elastic, AllAtOnceEndAlike) {
  Start(2);
  Crew crew;
  for (int rank = 0; rank < 4; ++rank) crew.Add(member_options(rank), Train(1, &sizes_[rank]));
  for (auto& size : sizes_) Await(size, 4);
  for (int rank : {3, 2, 1, 0}) crew.member(rank).RequestStop();
  crew.Join();
  EXPECT_EQ(cluster_.coordinator().Wait().code, ExitCode::kPreempted);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(ExitCodeOf(crew.result(rank)), ExitCode::kPreempted) << rank;
}

TEST_F(Elastic, WhoIsAskedToStopWhileTheChiefIsGoneWaitsALittleForItsSuccessor) {
  Start(2);
  Crew crew;
  for (int rank : {1, 2, 3}) crew.Add(member_options(rank), Train(3, &sizes_[rank]));
  {
    auto chief = membership::Member::Make(member_options(0));
    ASSERT_TRUE(chief->NextGeneration(0).ok());
    for (int rank : {1, 2, 3}) Await(sizes_[rank], 4);
    cluster_.StopChief();
  }
  for (int i : {0, 1, 2}) crew.member(i).RequestStop();
  crew.Join();
  for (int i : {0, 1, 2}) {
    EXPECT_EQ(ExitCodeOf(crew.result(i)), ExitCode::kPreempted);
    EXPECT_THAT(std::string(Message(crew.result(i))), HasSubstr("did not return to save"));
  }
}

}  // namespace
}  // namespace muster::chief::testing
