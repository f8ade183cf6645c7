#include "chief/shards/shard_assignment.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/unit/parameter_server/first_placements.h"

namespace muster::chief {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Change = ShardAssignment::Change;
using Targets = std::vector<std::pair<int, int>>;

constexpr Duration kHeartbeat = seconds(10), kRejoin = seconds(100);
constexpr ShardPlacement kUnserved;

// Returns the processes with these incarnations, by task. 0: the task has no process.
ServerProcesses Processes(std::vector<uint64_t> incarnations) {
  ServerProcesses processes{.incarnations = std::move(incarnations)};
  for (int task = 0; task < static_cast<int>(processes.incarnations.size()); ++task)
    if (processes.incarnations[task] != 0) processes.present.insert(task);
  return processes;
}

// Tasks that serve all shards, each with a backup, since a view that workers may know.
class ShardAssignmentTest : public ::testing::Test {
 protected:
  ShardAssignmentTest() : assignment_(2), all_(Processes({10, 11})) {
    assignment_.SetCopies(2);
    assignment_.SetPatience(kHeartbeat, kRejoin);
    assignment_.Restored(assignment_.TakeUnserved(all_.present, now_), all_);
    assignment_.UseView(all_);
  }
  void Lose(int task) { assignment_.Lose(task, now_, "no heartbeat"); }
  const ShardPlacement& Shard(int shard) const { return assignment_.placements()[shard]; }
  Targets Unserved(const ServerProcesses& processes) {
    return assignment_.TakeUnserved(processes.present, now_);
  }

  ShardAssignment assignment_;
  const ServerProcesses all_;
  MonotonicTime now_ = MonotonicTime() + seconds(5000);
};

proto::BeatReply Serving(const std::vector<int>& shards) {
  proto::BeatReply reply;
  reply.mutable_serving()->Assign(shards.begin(), shards.end());
  return reply;
}

proto::BeatReply Synced(const std::vector<int>& shards) {
  proto::BeatReply reply;
  reply.mutable_synced()->Assign(shards.begin(), shards.end());
  return reply;
}

proto::BeatReply Waiting(int shard, Duration time) {
  proto::BeatReply reply;
  (*reply.mutable_waiting())[shard] = Seconds(time);
  return reply;
}

// ---- The beginning

TEST(ShardAssignment, AtFirstNobodyServesAnything) {
  ShardAssignment assignment(3);
  EXPECT_EQ(assignment.placements(), Placements(3));
  EXPECT_EQ(assignment.awaited(), std::vector<Holders>(3)) << "nor has anything";
  EXPECT_EQ(assignment.HandleBeat(0, Serving({0}), Processes({10, 11, 12})), Change::kNone);
  EXPECT_FALSE(assignment.Join(0, {0}, Processes({10, 11, 12})));
  EXPECT_EQ(assignment.placements(), Placements(3));
}

TEST(ShardAssignment, TheFirstFillTakesEachTaskThatIsThere) {
  const MonotonicTime now = MonotonicTime() + seconds(5000);
  ShardAssignment assignment(3);
  EXPECT_EQ(assignment.TakeUnserved({}, now), Targets());
  EXPECT_EQ(assignment.TakeUnserved({0, 2}, now), (Targets{{0, 0}, {2, 2}})) << "one copy";
  assignment.SetCopies(2);
  EXPECT_EQ(assignment.TakeUnserved({0, 2}, now), (Targets{{0, 0}, {1, 2}, {2, 2}, {2, 0}}));
  const Targets targets = assignment.TakeUnserved({0, 1, 2}, now);
  EXPECT_EQ(targets, (Targets{{0, 0}, {0, 1}, {1, 1}, {1, 2}, {2, 2}, {2, 0}}));
  EXPECT_EQ(assignment.placements(), Placements(3)) << "nothing is filled yet";
  assignment.Restored(targets, Processes({10, 11, 12}));
  EXPECT_EQ(assignment.placements(), FirstPlacements(3, 2));
  EXPECT_EQ(assignment.TakeUnserved({0, 1, 2}, now), Targets());
}

TEST_F(ShardAssignmentTest, ALossBeforeTheFirstViewLeavesNothingToAwait) {
  ShardAssignment assignment(2);
  assignment.Lose(0, std::nullopt, "no heartbeat");
  EXPECT_EQ(assignment.placements(), Placements(2));
  EXPECT_EQ(assignment.TakeUnserved({0, 1}, now_), (Targets{{0, 0}, {1, 1}})) << "none is awaited";
}

TEST_F(ShardAssignmentTest, WhatWasFilledIsHeldBeforeWorkersKnowTheView) {
  ShardAssignment assignment(2);
  assignment.SetCopies(2);
  assignment.Restored(assignment.TakeUnserved(all_.present, now_), all_);
  for (const int task : {0, 1}) assignment.Lose(task, now_, "no heartbeat");
  EXPECT_EQ(assignment.awaited(), (std::vector<Holders>{{{0, 10}, {1, 11}}, {{0, 10}, {1, 11}}}));
}

// ---- Losses

TEST_F(ShardAssignmentTest, ABackupInSyncTakesOver) {
  Lose(0);
  EXPECT_EQ(Shard(0), (ShardPlacement{1, -1, false}));
  EXPECT_EQ(Shard(1), (ShardPlacement{1, -1, false}));
  EXPECT_EQ(assignment_.awaited(), std::vector<Holders>(2)) << "all are served";
  EXPECT_EQ(Unserved(Processes({0, 11})), Targets());
}

TEST_F(ShardAssignmentTest, ABackupThatIsNotInSyncDoesNot) {
  Lose(0);
  assignment_.UseView(Processes({0, 11}));
  EXPECT_TRUE(assignment_.Join(0, {}, Processes({20, 11})));
  EXPECT_EQ(Shard(1), (ShardPlacement{1, 0, false}));
  Lose(1);
  EXPECT_EQ(assignment_.placements(), Placements(2));
  EXPECT_EQ(assignment_.awaited(), (std::vector<Holders>{{{1, 11}}, {{1, 11}}}))
      << "workers have pushed to nobody else";
  EXPECT_EQ(Unserved(Processes({20, 0})), Targets());
}

// Workers may not know the newest view yet, so its processes may lack updates.
TEST_F(ShardAssignmentTest, AllThatTheLastKnownViewHadAreAwaited) {
  Lose(0);
  Lose(1);
  EXPECT_EQ(assignment_.awaited(), (std::vector<Holders>{{{0, 10}, {1, 11}}, {{0, 10}, {1, 11}}}));
}

TEST_F(ShardAssignmentTest, AProcessIsNotAwaitedOnceItHasEndedOrWasReplaced) {
  Lose(0);
  Lose(1);
  assignment_.Ended(0, 11);
  assignment_.Ended(1, 10);
  assignment_.Admit(0, 10);
  EXPECT_EQ(assignment_.awaited()[0], (Holders{{0, 10}, {1, 11}})) << "these were others";
  assignment_.Ended(0, 10);
  EXPECT_EQ(assignment_.awaited(), (std::vector<Holders>{{{1, 11}}, {{1, 11}}}));
  EXPECT_EQ(Unserved(Processes({20, 0})), Targets());
  assignment_.Admit(1, 21);
  EXPECT_EQ(assignment_.awaited(), std::vector<Holders>(2));
  EXPECT_EQ(Unserved(Processes({20, 21})), (Targets{{0, 0}, {0, 1}, {1, 1}, {1, 0}}));
}

// ---- Who comes

TEST_F(ShardAssignmentTest, AnotherProcessBecomesABackup) {
  Lose(0);
  assignment_.Admit(0, 20);
  EXPECT_FALSE(assignment_.Join(1, {0, 1}, Processes({0, 11}))) << "it is the only one";
  EXPECT_TRUE(assignment_.Join(0, {}, Processes({20, 11})));
  EXPECT_EQ(Shard(0), (ShardPlacement{1, 0, false}));
  EXPECT_EQ(Shard(1), (ShardPlacement{1, 0, false}));
  EXPECT_FALSE(assignment_.Join(0, {}, Processes({20, 11}))) << "as it was";
}

TEST_F(ShardAssignmentTest, WithoutCopiesNobodyIsABackup) {
  ShardAssignment assignment(2);
  assignment.Restored(assignment.TakeUnserved(all_.present, now_), all_);
  EXPECT_EQ(assignment.placements(), FirstPlacements(2, 1));
  EXPECT_FALSE(assignment.Join(0, {0}, all_));
  assignment.Adopt(FirstPlacements(2, 1), all_);
  EXPECT_EQ(assignment.placements(), FirstPlacements(2, 1));
}

TEST_F(ShardAssignmentTest, WhoComesBackWithAnUnservedShardHasItAgain) {
  Lose(0);
  Lose(1);
  EXPECT_TRUE(assignment_.Join(1, {1}, Processes({0, 11})));
  EXPECT_EQ(Shard(0), kUnserved);
  EXPECT_EQ(Shard(1), (ShardPlacement{1, -1, false}));
  EXPECT_EQ(assignment_.awaited(), (std::vector<Holders>{{{0, 10}}, {}}))
      << "a view has made task 1 drop shard 0";
  EXPECT_TRUE(assignment_.Join(0, {0, 1}, all_));
  EXPECT_EQ(Shard(0), (ShardPlacement{0, 1, false}));
  EXPECT_EQ(Shard(1), (ShardPlacement{1, 0, false})) << "what it has of it is old";
}

TEST_F(ShardAssignmentTest, WhoIsNoHolderIsNotTrusted) {
  Lose(0);
  assignment_.UseView(Processes({0, 11}));
  Lose(1);
  EXPECT_FALSE(assignment_.Join(0, {0, 1}, Processes({10, 0}))) << "it has missed updates";
  EXPECT_EQ(assignment_.HandleBeat(0, Serving({0, 1}), Processes({10, 0})), Change::kNone);
  EXPECT_EQ(assignment_.placements(), Placements(2));
}

// ---- Beats

TEST_F(ShardAssignmentTest, ABackupIsInSyncOnceItsPrimarySaysSo) {
  Lose(0);
  assignment_.UseView(Processes({0, 11}));
  const ServerProcesses processes = Processes({20, 11});
  assignment_.Admit(0, 20);
  assignment_.Join(0, {}, processes);
  for (const std::vector<int>& none : {std::vector<int>{}, {-1}, {2}})
    EXPECT_EQ(assignment_.HandleBeat(1, Synced(none), processes), Change::kNone);
  EXPECT_EQ(assignment_.HandleBeat(0, Synced({0, 1}), processes), Change::kNone)
      << "it is the backup";
  EXPECT_FALSE(Shard(0).in_sync);
  EXPECT_EQ(assignment_.HandleBeat(1, Synced({0}), processes), Change::kRecord);
  EXPECT_EQ(Shard(0), (ShardPlacement{1, 0, true}));
  EXPECT_FALSE(Shard(1).in_sync);
  EXPECT_EQ(assignment_.HandleBeat(1, Synced({0}), processes), Change::kNone) << "it is known";
  // From now on the primary acknowledges nothing that the backup lacks.
  Lose(1);
  Lose(0);
  EXPECT_EQ(assignment_.awaited(), (std::vector<Holders>{{{0, 20}, {1, 11}}, {{1, 11}}}));
}

TEST_F(ShardAssignmentTest, APrimaryGoesOnWithoutABackupThatItHasWaitedFor) {
  EXPECT_EQ(assignment_.HandleBeat(0, Waiting(0, kHeartbeat - milliseconds(1)), all_),
            Change::kNone);
  EXPECT_EQ(assignment_.HandleBeat(1, Waiting(0, kHeartbeat), all_), Change::kNone)
      << "it is the backup";
  EXPECT_EQ(assignment_.HandleBeat(0, Waiting(2, kHeartbeat), all_), Change::kNone);
  EXPECT_EQ(assignment_.placements(), FirstPlacements(2, 2));
  EXPECT_EQ(assignment_.HandleBeat(0, Waiting(0, kHeartbeat), all_), Change::kView);
  EXPECT_EQ(Shard(0), (ShardPlacement{0, 1, false}));
  EXPECT_TRUE(Shard(1).in_sync);
  assignment_.UseView(all_);
  Lose(1);
  Lose(0);
  EXPECT_EQ(assignment_.awaited()[0], (Holders{{0, 10}})) << "the backup has missed updates";
}

TEST_F(ShardAssignmentTest, APushIsHeldUpForAMinuteAtMost) {
  assignment_.SetPatience(seconds(300), kRejoin);
  EXPECT_EQ(assignment_.HandleBeat(0, Waiting(0, milliseconds(59999)), all_), Change::kNone);
  EXPECT_EQ(assignment_.HandleBeat(0, Waiting(0, seconds(60)), all_), Change::kView);
}

TEST_F(ShardAssignmentTest, WhatABeatHoldsOfUnservedShardsIsServedAgain) {
  Lose(0);
  Lose(1);
  const ServerProcesses processes = Processes({0, 11});
  EXPECT_EQ(assignment_.HandleBeat(1, Serving({0, 1}), processes), Change::kView);
  EXPECT_EQ(Shard(0), (ShardPlacement{1, -1, false}));
  EXPECT_EQ(Shard(1), (ShardPlacement{1, -1, false}));
  EXPECT_EQ(assignment_.HandleBeat(1, Serving({0, 1}), processes), Change::kNone);
}

TEST_F(ShardAssignmentTest, WhatABeatBringsBackGetsABackupAtOnce) {
  Lose(0);
  Lose(1);
  assignment_.Admit(0, 20);
  EXPECT_FALSE(assignment_.Join(0, {}, Processes({20, 0})));
  EXPECT_EQ(assignment_.HandleBeat(1, Serving({1}), Processes({20, 11})), Change::kView);
  EXPECT_EQ(Shard(1), (ShardPlacement{1, 0, false}));
}

TEST_F(ShardAssignmentTest, ABeatThatNeedsAViewIsMoreThanOneForTheRecord) {
  Lose(0);
  const ServerProcesses processes = Processes({20, 11});
  assignment_.Join(0, {}, processes);
  proto::BeatReply reply = Synced({0});
  (*reply.mutable_waiting())[1] = Seconds(kHeartbeat);
  EXPECT_EQ(assignment_.HandleBeat(1, reply, processes), Change::kView);
  EXPECT_TRUE(Shard(0).in_sync);
  EXPECT_FALSE(Shard(1).in_sync);
}

// ---- Shards that are to be restored

TEST_F(ShardAssignmentTest, AShardIsRestoredOnceItsHoldersHaveHadTheirTime) {
  Lose(0);
  assignment_.UseView(Processes({0, 11}));
  now_ += seconds(30);
  Lose(1);  // All are unserved since now.
  now_ += kRejoin - milliseconds(1);
  EXPECT_EQ(Unserved(Processes({20, 0})), Targets());
  EXPECT_EQ(assignment_.awaited()[0], (Holders{{1, 11}}));
  now_ += milliseconds(1);
  const ServerProcesses processes = Processes({20, 0});
  const Targets targets = Unserved(processes);
  EXPECT_EQ(targets, (Targets{{0, 0}, {1, 0}}));
  EXPECT_EQ(assignment_.awaited(), std::vector<Holders>(2));
  EXPECT_FALSE(assignment_.Join(1, {0, 1}, Processes({20, 11}))) << "it comes too late";
  EXPECT_EQ(assignment_.placements(), Placements(2));
  assignment_.Restored(targets, processes);
  EXPECT_EQ(Shard(0), (ShardPlacement{0, -1, false}));
  EXPECT_EQ(Shard(1), (ShardPlacement{0, -1, false}));
}

TEST_F(ShardAssignmentTest, EachShardHasItsOwnTime) {
  ShardAssignment assignment(2);
  assignment.SetPatience(kHeartbeat, kRejoin);
  assignment.Restored(assignment.TakeUnserved(all_.present, now_), all_);
  assignment.Lose(0, now_, "no heartbeat");
  assignment.Lose(1, now_ + seconds(50), "no heartbeat");
  assignment.Lose(0, now_ + seconds(60), "no heartbeat");  // It serves nothing: no new time.
  const MonotonicTime then = now_ + kRejoin;
  EXPECT_EQ(assignment.TakeUnserved({0, 1}, then), (Targets{{0, 0}}));
  EXPECT_EQ(assignment.awaited(), (std::vector<Holders>{{}, {{1, 11}}}));
  EXPECT_EQ(assignment.TakeUnserved({0, 1}, then + seconds(50)), (Targets{{0, 0}, {1, 1}}));
}

TEST_F(ShardAssignmentTest, AViewWithoutAShardForgetsNobodyWhoHasIt) {
  ShardAssignment assignment(2);
  assignment.Restored(assignment.TakeUnserved(all_.present, now_), all_);
  assignment.Lose(0, now_, "no heartbeat");
  assignment.UseView(Processes({0, 11}));
  EXPECT_EQ(assignment.awaited(), (std::vector<Holders>{{{0, 10}}, {}}));
}

TEST_F(ShardAssignmentTest, AShardWithoutAHomeIsNotGivenUp) {
  ShardAssignment assignment(2);
  assignment.SetPatience(kHeartbeat, kRejoin);
  assignment.Restored(assignment.TakeUnserved(all_.present, now_), all_);
  assignment.Lose(0, now_, "no heartbeat");
  EXPECT_EQ(assignment.TakeUnserved({1}, now_ + 2 * kRejoin), Targets());
  EXPECT_EQ(assignment.awaited()[0], (Holders{{0, 10}})) << "its process may still come";
  EXPECT_TRUE(assignment.Join(0, {0}, all_));
  EXPECT_EQ(assignment.placements(), FirstPlacements(2, 1));
}

// ---- After a restart of the chief

TEST(ShardAssignment, ARestartedChiefGoesOnWithWhatItFinds) {
  ShardAssignment assignment(3);
  assignment.SetCopies(2);
  const ServerProcesses processes = Processes({10, 11, 12});
  assignment.Adopt({{0, 1, true}, {1, -1, false}, kUnserved}, processes);
  EXPECT_EQ(assignment.placements(), (Placements{{0, 1, true}, {1, 2, false}, kUnserved}));
  EXPECT_EQ(assignment.awaited(), std::vector<Holders>(3)) << "no holder of shard 2 came";
  const MonotonicTime now = MonotonicTime() + seconds(5000);
  EXPECT_EQ(assignment.TakeUnserved(processes.present, now), (Targets{{2, 2}, {2, 0}}));
  assignment.Lose(1, now, "no heartbeat");
  assignment.Lose(0, now, "no heartbeat");
  EXPECT_EQ(assignment.awaited(), (std::vector<Holders>{{{0, 10}, {1, 11}}, {{1, 11}}, {}}))
      << "the new backup of shard 1 had nothing yet";
}

}  // namespace
}  // namespace muster::chief
