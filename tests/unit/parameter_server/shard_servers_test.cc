#include "chief/shards/shard_servers.h"

#include <gtest/gtest.h>

#include "tests/unit/parameter_server/first_placements.h"

namespace muster::chief {
namespace {

using Kind = ServerCall::Kind;
using Targets = std::vector<std::pair<int, int>>;

constexpr Duration kMayBeAway = std::chrono::seconds(100);

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
    servers_.SetPatience(std::chrono::seconds(10), kMayBeAway);
    servers_.SetRecord("first", 0);
    for (int task = 0; task < 2; ++task) Join(task, 10 + task);
    servers_.Restored(servers_.TakeUnserved(now_));
    NewView();
    Bring();
  }
  // With the whole state of these shards.
  void Join(int task, uint64_t incarnation, const std::vector<int>& serving = {}) {
    servers_.Admit(Process(task, incarnation));
    EXPECT_EQ(servers_.NextCall(task, now_).kind, Kind::kCreate);
    proto::CreateReply reply;
    reply.mutable_serving()->Assign(serving.begin(), serving.end());
    if (servers_.Created(task, reply)) NewView();
  }
  void Lose(int task) {
    if (servers_.Lose(task, "no heartbeat", now_)) NewView();
  }
  void Kill(int task) {
    servers_.Ended(task, servers_.member(task).incarnation);
    Lose(task);
  }
  void NewView() {
    servers_.NewView(++views_, "ticket", nullptr);
    servers_.SetRecord("of view " + std::to_string(views_), 0);
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
  EXPECT_NE(servers_.WhyClosed(0), "");
  NewView();
  EXPECT_FALSE(servers_.all_have_view());
  EXPECT_EQ(Bring(),
            (std::vector<Kind>{Kind::kSetWorkers, Kind::kBeat, Kind::kSetView, Kind::kBeat}));
  EXPECT_TRUE(servers_.Settled());
  EXPECT_EQ(servers_.WhyClosed(0), "");
  EXPECT_NE(servers_.WhyClosed(1), "") << "no task knows it";
}

TEST_F(ShardServersTest, ABackupTakesOverAndTheTaskComesBackAsOne) {
  Kill(0);
  EXPECT_EQ(servers_.placements()[0], (ShardPlacement{1, -1, false}));
  Bring();
  EXPECT_TRUE(servers_.Settled());
  EXPECT_EQ(servers_.view().shards(0).primary_address(), "host:11");
  Join(0, 20);
  EXPECT_EQ(servers_.placements()[0], (ShardPlacement{1, 0, false}));
  proto::BeatReply reply;
  reply.set_view(views_ - 1);
  reply.add_synced(0);
  EXPECT_EQ(servers_.HandleBeat(1, reply), ShardServers::Change::kNone) << "of another view";
  reply.set_view(views_);
  EXPECT_EQ(servers_.HandleBeat(1, reply), ShardServers::Change::kRecord);
  EXPECT_EQ(servers_.HandleBeat(1, reply), ShardServers::Change::kNone) << "it is known";
}

TEST_F(ShardServersTest, APrimaryWaitsForItsBackupNoLongerThanAHeartbeat) {
  proto::BeatReply reply;
  reply.set_view(views_);
  (*reply.mutable_waiting())[0] = 9.5;
  EXPECT_EQ(servers_.HandleBeat(0, reply), ShardServers::Change::kNone);
  (*reply.mutable_waiting())[0] = 10.5;
  EXPECT_EQ(servers_.HandleBeat(0, reply), ShardServers::Change::kView);
  EXPECT_FALSE(servers_.placements()[0].in_sync);
}

TEST_F(ShardServersTest, ShardsThatNoTaskServesAreFilledPrimariesFirst) {
  Kill(0);
  Kill(1);
  EXPECT_TRUE(servers_.TakeUnserved(now_).empty()) << "no task is there";
  Join(1, 21);
  EXPECT_EQ(servers_.TakeUnserved(now_), (Targets{{0, 1}, {1, 1}}));
  Join(0, 20);
  EXPECT_EQ(servers_.TakeUnserved(now_), (Targets{{0, 0}, {0, 1}, {1, 1}, {1, 0}}));
  servers_.Restored(servers_.TakeUnserved(now_));
  EXPECT_EQ(servers_.placements(), FirstPlacements(2, 2));
}

// The chief reaches neither task; both processes hold what they held.
TEST_F(ShardServersTest, AProcessThatComesBackWithAShardThatNobodyServesHasItAgain) {
  Lose(1);
  Lose(0);
  EXPECT_EQ(servers_.placements()[0].primary, -1);
  EXPECT_EQ(servers_.awaited()[0], (Holders{{0, 10}, {1, 11}}));
  now_ += kMayBeAway - std::chrono::seconds(1);
  EXPECT_TRUE(servers_.TakeUnserved(now_).empty());
  Join(1, 11, {0, 1});
  EXPECT_EQ(servers_.placements()[0], (ShardPlacement{1, -1, false}));
  EXPECT_EQ(servers_.placements()[1], (ShardPlacement{1, -1, false}));
  Join(0, 10, {0, 1});
  EXPECT_EQ(servers_.placements()[0], (ShardPlacement{1, 0, false}));
  EXPECT_TRUE(servers_.TakeUnserved(now_ + kMayBeAway).empty()) << "all are served";
}

TEST_F(ShardServersTest, AShardIsRestoredOnceNobodyWhoHoldsItCanComeBack) {
  Lose(0);
  Lose(1);
  Join(1, 21);
  EXPECT_TRUE(servers_.TakeUnserved(now_).empty()) << "ps 0 still holds both";
  servers_.Ended(0, 9);
  EXPECT_TRUE(servers_.TakeUnserved(now_).empty()) << "that was the one before";
  servers_.Ended(0, 10);
  EXPECT_EQ(servers_.TakeUnserved(now_), (Targets{{0, 1}, {1, 1}}));
}

TEST_F(ShardServersTest, AShardIsRestoredOnceNobodyWhoHoldsItHasComeBackInTime) {
  Lose(0);
  Lose(1);
  Join(1, 21);
  now_ += kMayBeAway;
  EXPECT_EQ(servers_.TakeUnserved(now_), (Targets{{0, 1}, {1, 1}}));
  Join(0, 10, {0, 1});
  EXPECT_EQ(servers_.placements()[0].primary, -1) << "the shards are being filled by now";
  EXPECT_EQ(servers_.TakeUnserved(now_), (Targets{{0, 0}, {0, 1}, {1, 1}, {1, 0}}));
}

TEST_F(ShardServersTest, OneThatHasForgottenAShardIsNotWaitedFor) {
  Lose(0);
  Lose(1);
  Join(1, 11, {1});
  EXPECT_EQ(servers_.placements()[0].primary, -1);
  EXPECT_EQ(servers_.placements()[1].primary, 1);
  EXPECT_EQ(servers_.awaited()[0], (Holders{{0, 10}}));
  Join(0, 20);
  EXPECT_EQ(servers_.TakeUnserved(now_), (Targets{{0, 0}, {0, 1}}));
}

// Workers may have pushed to the backup that took over, and to it alone.
TEST_F(ShardServersTest, OneThatWasReplacedIsNotWaitedForOnceWorkersMayKnowTheView) {
  Lose(0);
  Bring();
  Lose(1);
  EXPECT_EQ(servers_.awaited()[0], (Holders{{1, 11}}));
  Join(0, 10, {0, 1});
  EXPECT_EQ(servers_.placements()[0].primary, -1);
  EXPECT_TRUE(servers_.TakeUnserved(now_).empty());
  Join(1, 11, {0, 1});
  EXPECT_EQ(servers_.placements()[0], (ShardPlacement{1, 0, false}));
}

TEST_F(ShardServersTest, ARestartedChiefKnowsWhoHoldsWhatNobodyServes) {
  Lose(0);
  Lose(1);
  ChiefRecord record;
  record.placements = servers_.placements();
  record.awaited = servers_.awaited();
  record.work = Json::object();
  const auto read = ChiefRecordOf(ToText(record));
  ASSERT_TRUE(read.ok()) << read.status();
  for (const bool same : {true, false}) {
    ShardServers next(2);
    next.SetCopies(2);
    for (int task = 0; task < 2; ++task) {
      next.Admit(Process(task, task == 0 && same ? 10 : 20 + task));
      proto::CreateReply reply;
      reply.add_serving(0);
      reply.add_serving(1);
      next.Created(task, reply);
    }
    const Placements held = next.PlacementsIn(*read);
    EXPECT_EQ(held[0].primary, same ? 0 : -1) << "another process may have been filled meanwhile";
    EXPECT_EQ(held[0].backup, -1);
  }
}

TEST_F(ShardServersTest, ACallThatFailedIsMadeAgainLater) {
  servers_.SetRecord("another", 0);
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
  Kill(0);
  EXPECT_GT(servers_.changes(), before);
}

}  // namespace
}  // namespace muster::chief
