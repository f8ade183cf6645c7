#include "chief/leases/view_rules.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/unit/parameter_server/first_placements.h"

namespace muster::chief {
namespace {

TEST(ViewRules, TheFirstPlacementsSpreadShardsAndBackups) {
  EXPECT_EQ(Describe(FirstPlacements(2, 1)), "shard 0 on ps 0; shard 1 on ps 1");
  EXPECT_EQ(Describe(FirstPlacements(3, 2)),
            "shard 0 on ps 0, backup ps 1; shard 1 on ps 1, backup ps 2; shard 2 on ps 2, backup "
            "ps 0");
  EXPECT_EQ(Describe(FirstPlacements(1, 2)), "shard 0 on ps 0");
}

TEST(ViewRules, ABackupInSyncTakesOverAndOneThatIsNotDoesNot) {
  Placements placements = FirstPlacements(2, 2);
  LoseServer(0, &placements);
  EXPECT_EQ(Describe(placements), "shard 0 on ps 1; shard 1 on ps 1");
  EXPECT_TRUE(AddBackups({0, 1}, 2, &placements));
  EXPECT_FALSE(AddBackups({0, 1}, 2, &placements));
  EXPECT_EQ(Describe(placements),
            "shard 0 on ps 1, backup to be ps 0; shard 1 on ps 1, backup to "
            "be ps 0");
  EXPECT_FALSE(Synced(0, 0, &placements)) << "that is not its primary";
  EXPECT_FALSE(Synced(1, 7, &placements));
  EXPECT_TRUE(Synced(1, 0, &placements));
  EXPECT_FALSE(Synced(1, 0, &placements)) << "it is known";
  LoseServer(1, &placements);
  EXPECT_EQ(Describe(placements), "shard 0 on ps 0; shard 1 nowhere");
  EXPECT_FALSE(Complete(placements));
  EXPECT_EQ(ToRestore(placements, {0}, 2), (std::vector<std::pair<int, int>>{{1, 0}}));
  EXPECT_EQ(ToRestore(placements, {0}, 1), (std::vector<std::pair<int, int>>{}))
      << "with one replica a shard waits for its own task";
  EXPECT_EQ(ToRestore(placements, {0, 1}, 2), (std::vector<std::pair<int, int>>{{1, 1}}));
  Restored(1, 1, &placements);
  EXPECT_TRUE(Complete(placements));
}

TEST(ViewRules, APrimaryGoesOnWithoutABackupThatDoesNotAnswer) {
  Placements placements = FirstPlacements(2, 2);
  EXPECT_FALSE(CanDropBackup(1, 0, &placements)) << "that is not its primary";
  EXPECT_FALSE(CanDropBackup(0, 7, &placements));
  EXPECT_TRUE(CanDropBackup(0, 0, &placements));
  EXPECT_TRUE(CanDropBackup(0, 0, &placements)) << "it may be up to date again, and lost again";
  Placements alone = FirstPlacements(2, 1);
  EXPECT_FALSE(CanDropBackup(0, 0, &alone));
  EXPECT_EQ(Describe(placements),
            "shard 0 on ps 0, backup to be ps 1; shard 1 on ps 1, backup ps 0");
  LoseServer(0, &placements);
  EXPECT_EQ(placements[0].primary, -1) << "the backup lacks what was acknowledged without it";
}

TEST(ViewRules, AShardGoesBackOnceNobodyIsLeftOrNobodyHasComeBackInTime) {
  const MonotonicTime since = Clock::now();
  constexpr Duration kPatience = std::chrono::seconds(5), kMoment = std::chrono::milliseconds(1);
  EXPECT_TRUE(MustRestore({}, since, kPatience, since));
  EXPECT_FALSE(MustRestore({{1, 7}}, since, kPatience, since + kPatience - kMoment));
  EXPECT_TRUE(MustRestore({{1, 7}}, since, kPatience, since + kPatience));
  EXPECT_EQ(Describe(Holders{{0, 7}, {2, 8}}), "ps 0 or ps 2");
}

TEST(ViewRules, ARestartedChiefTrustsWhatBothTheRecordAndTheTasksSay) {
  const Placements record = FirstPlacements(3, 2);
  EXPECT_EQ(AdoptPlacements(record, {{0, 2}, {0, 1}, {1, 2}}), record);
  EXPECT_EQ(Describe(AdoptPlacements(record, {{}, {0, 1}, {1, 2}})),
            "shard 0 on ps 1; shard 1 on ps 1, backup ps 2; shard 2 on ps 2");
  EXPECT_EQ(Describe(AdoptPlacements(record, {{}, {}, {1, 2}})),
            "shard 0 nowhere; shard 1 on ps 2; shard 2 on ps 2");
  Placements unsynced = record;
  unsynced[0].in_sync = false;
  EXPECT_EQ(AdoptPlacements(unsynced, {{}, {0, 1}, {1, 2}})[0].primary, -1)
      << "what it holds is old";
  Placements taken = record;
  taken[0] = {1, -1, false};  // ps 0 was replaced, and wakes with what it had
  EXPECT_EQ(AdoptPlacements(taken, {{0, 2}, {0, 1}, {1, 2}})[0].primary, 1);
}

// After any losses and returns, a task that counts as holder of a shard has every update of it,
// unless all holders were lost.
TEST(ViewRules, NobodyCountsWhoLacksAnUpdate) {
  for (int seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const int servers = 1 + seed % 4, replicas = 1 + seed / 4 % 2;
    Placements placements = FirstPlacements(servers, replicas);
    std::vector<std::map<int, int>> held(servers);  // by task: shard -> updates that it has
    std::vector<int> truth(servers);
    Present present;
    for (int task = 0; task < servers; ++task) present.insert(task);
    for (int s = 0; s < servers; ++s) {
      held[placements[s].primary][s] = 0;
      if (placements[s].backup >= 0) held[placements[s].backup][s] = 0;
    }
    for (int i = 0; i < 200; ++i) {
      const int task = static_cast<int>(random() % servers);
      const int shard = static_cast<int>(random() % servers);
      switch (random() % 4) {
        case 0:
          if (!present.erase(task)) break;
          held[task].clear();
          LoseServer(task, &placements);
          break;
        case 1:
          present.insert(task);
          for (const auto& [s, to] : ToRestore(placements, present, replicas)) {
            held[to][s] = truth[s] = 0;
            Restored(s, to, &placements);
          }
          AddBackups(present, replicas, &placements);
          break;
        case 2: {  // an update
          const ShardPlacement& place = placements[shard];
          if (place.primary < 0) break;
          held[place.primary][shard] = ++truth[shard];
          if (place.in_sync) held[place.backup][shard] = truth[shard];
          break;
        }
        default: {
          const ShardPlacement& place = placements[shard];
          if (place.backup < 0) break;
          held[place.backup][shard] = truth[shard];
          Synced(place.primary, shard, &placements);
        }
      }
      for (int s = 0; s < servers; ++s) {
        const ShardPlacement& place = placements[s];
        EXPECT_NE(place.primary, place.backup == -1 ? -2 : place.backup);
        if (place.primary >= 0) {
          EXPECT_TRUE(present.contains(place.primary));
          EXPECT_EQ(held[place.primary].at(s), truth[s]) << seed;
        }
        if (place.in_sync) {
          EXPECT_EQ(held[place.backup].at(s), truth[s]) << seed;
        }
        EXPECT_TRUE(place.backup < 0 || present.contains(place.backup));
      }
    }
  }
}

}  // namespace
}  // namespace muster::chief
