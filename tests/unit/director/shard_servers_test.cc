#include "chief/shard_servers.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using Kind = ServerCall::Kind;

AdmittedMember Process(int task, uint64_t incarnation) {
  AdmittedMember member;
  member.task = {TaskType::kPs, task};
  member.incarnation = incarnation;
  member.data_address = "host:" + std::to_string(incarnation);
  return member;
}

class ShardServersTest : public ::testing::Test {
 protected:
  ShardServersTest() : servers_(2) {
    servers_.SetCopies(2);
    servers_.SetHeartbeat(std::chrono::seconds(10));
    servers_.SetRecord("first");
    for (int task = 0; task < 2; ++task) Join(task, 10 + task);
    servers_.Restored(servers_.Unserved());
    NewView();
    Bring();
  }
  void Join(int task, uint64_t incarnation) {
    servers_.Admit(Process(task, incarnation));
    EXPECT_EQ(servers_.NextCall(task, now_).kind, Kind::kCreate);
    if (servers_.Created(task, {})) NewView();
  }
  void NewView() {
    servers_.NewView(++views_, "ticket", nullptr);
    servers_.SetRecord("of view " + std::to_string(views_));
  }
  // All calls that are due succeed; the kinds that task 0 gets.
  std::vector<Kind> Bring() {
    std::vector<Kind> kinds;
    bool again = true;
    while (again) {
      again = false;
      for (int task = 0; task < 2; ++task) {
        const ServerCall call = servers_.NextCall(task, now_);
        if (call.kind == Kind::kNone) continue;
        if (task == 0) kinds.push_back(call.kind);
        servers_.Succeeded(task, call, now_);
        again = true;
      }
    }
    return kinds;
  }

  ShardServers servers_;
  MonotonicTime now_ = Clock::now();
  uint64_t views_ = 0;
};

TEST_F(ShardServersTest, AViewIsSentOnceItsRecordIsKept) {
  EXPECT_TRUE(servers_.Settled());
  servers_.SetWorkers({{0, 7}});
  servers_.AddWorker(0);
  EXPECT_NE(servers_.WhyShut(0), "");
  NewView();
  EXPECT_FALSE(servers_.all_have_view());
  EXPECT_EQ(Bring(),
            (std::vector<Kind>{Kind::kSetWorkers, Kind::kBeat, Kind::kSetView, Kind::kBeat}));
  EXPECT_TRUE(servers_.Settled());
  EXPECT_EQ(servers_.WhyShut(0), "");
  EXPECT_NE(servers_.WhyShut(1), "") << "no task knows it";
}

TEST_F(ShardServersTest, ABackupTakesOverAndTheTaskComesBackAsOne) {
  EXPECT_TRUE(servers_.Lose(0, "killed"));
  NewView();
  EXPECT_EQ(servers_.placements()[0], (ShardPlacement{1, -1, false}));
  Bring();
  EXPECT_TRUE(servers_.Settled());
  EXPECT_EQ(servers_.view().shards(0).primary_address(), "host:11");
  Join(0, 20);
  EXPECT_EQ(servers_.placements()[0], (ShardPlacement{1, 0, false}));
  proto::BeatReply reply;
  reply.set_view(views_ - 1);
  reply.add_synced(0);
  EXPECT_EQ(servers_.Beaten(1, reply), ShardServers::Change::kNone) << "of another view";
  reply.set_view(views_);
  EXPECT_EQ(servers_.Beaten(1, reply), ShardServers::Change::kRecord);
  EXPECT_EQ(servers_.Beaten(1, reply), ShardServers::Change::kNone) << "it is known";
}

TEST_F(ShardServersTest, APrimaryWaitsForItsBackupNoLongerThanAHeartbeat) {
  proto::BeatReply reply;
  reply.set_view(views_);
  (*reply.mutable_waiting())[0] = 9.5;
  EXPECT_EQ(servers_.Beaten(0, reply), ShardServers::Change::kNone);
  (*reply.mutable_waiting())[0] = 10.5;
  EXPECT_EQ(servers_.Beaten(0, reply), ShardServers::Change::kView);
  EXPECT_FALSE(servers_.placements()[0].in_sync);
}

TEST_F(ShardServersTest, ShardsThatNoTaskServesAreFilledPrimariesFirst) {
  servers_.Lose(0, "killed");
  servers_.Lose(1, "killed");
  NewView();
  EXPECT_TRUE(servers_.Unserved().empty()) << "no task is there";
  Join(1, 21);
  EXPECT_EQ(servers_.Unserved(), (std::vector<std::pair<int, int>>{{0, 1}, {1, 1}}));
  Join(0, 20);
  using Targets = std::vector<std::pair<int, int>>;
  EXPECT_EQ(servers_.Unserved(), (Targets{{0, 0}, {0, 1}, {1, 1}, {1, 0}}));
  servers_.Restored(servers_.Unserved());
  EXPECT_EQ(servers_.placements(), FirstPlacements(2, 2));
}

TEST_F(ShardServersTest, ACallThatFailedIsMadeAgainLater) {
  servers_.SetRecord("another");
  EXPECT_EQ(servers_.NextCall(0, now_).kind, Kind::kBeat);
  servers_.Failed(0, now_);
  const ServerCall call = servers_.NextCall(0, now_);
  EXPECT_EQ(call.kind, Kind::kNone);
  EXPECT_GT(call.next, now_);
  EXPECT_EQ(servers_.NextCall(0, call.next).kind, Kind::kBeat);
}

// Held calls of workers are tried again for these alone.
TEST_F(ShardServersTest, ABeatWithNothingNewIsNoChange) {
  const uint64_t before = servers_.changes();
  now_ += std::chrono::seconds(2);
  EXPECT_EQ(Bring(), std::vector<Kind>{Kind::kBeat});
  EXPECT_EQ(servers_.changes(), before);
  servers_.Lose(0, "killed");
  EXPECT_GT(servers_.changes(), before);
}

}  // namespace
}  // namespace muster
