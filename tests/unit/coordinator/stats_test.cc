// Tests the measurements of members, in heartbeats and in Status.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "chief/coordinator/admission/peer_limits.h"
#include "common/base/phase.h"
#include "common/rpc/channel.h"
#include "proto/coordinator.grpc.pb.h"
#include "tests/unit/coordinator/harness.h"

namespace muster::chief::testing {
namespace {

using membership::Member;
using ::testing::ElementsAre;

proto::StatusReply StatusOf(const TestCluster& cluster) {
  proto::StatusReply reply;
  const auto stub = proto::Coordinator::NewStub(*rpc::MakeChannel(cluster.address()));
  EXPECT_TRUE(stub->Status(rpc::WithDeadline(kLimit).get(), {}, &reply).ok());
  return reply;
}

// Asks until `wanted` is true of the reply.
proto::StatusReply Await(const TestCluster& cluster,
                         const std::function<bool(const proto::StatusReply&)>& wanted) {
  proto::StatusReply reply;
  const MonotonicTime end = Clock::now() + kLimit;
  while (Clock::now() < end && !wanted(reply = StatusOf(cluster)))
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return reply;
}

class Stats : public ::testing::Test {
 protected:
  // A member whose steps need `local_seconds` before they wait for others.
  std::unique_ptr<Member> Join(int rank, std::atomic<double>* local_seconds) {
    membership::MemberOptions options = cluster_.member_options(rank);
    options.stats = [this, local_seconds](proto::TaskStats* stats) {
      stats->set_steps(++steps_);
      stats->set_local_step_seconds(*local_seconds);
      stats->add_gpus()->set_uuid("GPU-1");
    };
    auto member = Member::Make(std::move(options));
    EXPECT_TRUE(member->Join().ok());
    return member;
  }
  TestCluster cluster_{2};
  std::atomic<int64_t> steps_ = 0;
  std::atomic<double> fast_ = 0.1, slow_ = 0.1;
};

TEST_F(Stats, AreInStatusAndNameTheStraggler) {
  absl::Mutex mutex;
  std::vector<std::string> events;
  CoordinatorOptions options = cluster_.coordinator_options();
  options.on_straggler = [&](const TaskId& member, bool straggler) {
    absl::MutexLock lock(&mutex);
    events.push_back(member.ToString() + (straggler ? " is" : " is not"));
  };
  ASSERT_TRUE(cluster_.StartChief(std::move(options)).ok());
  std::vector<std::unique_ptr<Member>> members;
  for (int rank = 0; rank < 3; ++rank) members.push_back(Join(rank, rank == 2 ? &slow_ : &fast_));
  proto::StatusReply reply = Await(cluster_, [](const proto::StatusReply& status) {
    for (const proto::MemberStatus& member : status.members())
      if (!member.has_stats()) return false;
    return status.members_size() == 3;
  });
  ASSERT_EQ(reply.members_size(), 3);
  for (const proto::MemberStatus& member : reply.members()) {
    EXPECT_EQ(member.stats().local_step_seconds(), 0.1);
    EXPECT_EQ(member.stats().gpus_size(), 1);
    EXPECT_FALSE(member.straggler());
  }
  EXPECT_EQ(cluster_.coordinator().Stats().size(), 3);
  const auto slow_is = [](bool straggler) {
    return [straggler](const proto::StatusReply& status) {
      return status.members_size() == 3 && status.members(2).straggler() == straggler;
    };
  };
  slow_ = 0.5;
  reply = Await(cluster_, slow_is(true));
  EXPECT_TRUE(reply.members(2).straggler());
  EXPECT_FALSE(reply.members(0).straggler());
  EXPECT_FALSE(reply.members(1).straggler());
  slow_ = 0.1;
  EXPECT_FALSE(Await(cluster_, slow_is(false)).members(2).straggler());
  absl::MutexLock lock(&mutex);
  EXPECT_THAT(events, ElementsAre("worker:1 is", "worker:1 is not"));
}

TEST(CleanStats, BoundsWhatAPeerSends) {
  proto::TaskStats stats;
  for (int i = 0; i < 1000; ++i) {
    stats.add_phase_seconds(1);
    stats.add_gpus()->set_uuid(std::string(1000, 'x') + "\n\x1b");
    stats.add_input_queues()->set_dataset("\x1b" + std::string(100000, 'x'));
  }
  CleanStats(&stats);
  EXPECT_EQ(stats.phase_seconds_size(), kNumPhases);
  EXPECT_LE(stats.gpus_size(), 64);
  EXPECT_LE(stats.gpus(0).uuid().size(), 110);
  EXPECT_EQ(stats.gpus(0).uuid().find('\x1b'), std::string::npos);
  EXPECT_LE(stats.input_queues_size(), 64);
  EXPECT_LE(stats.input_queues(0).dataset().size(), 110);
  EXPECT_EQ(stats.input_queues(0).dataset().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace muster::chief::testing
