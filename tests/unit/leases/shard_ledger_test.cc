// Which updates a shard holds, and which it lost.
#include "chief/leases/shard_ledger.h"

#include <gtest/gtest.h>

namespace muster::chief {
namespace {

using Views = std::vector<uint64_t>;

TEST(ShardLedger, ARestoredShardLosesWhatWasAcceptedSince) {
  ShardLedger ledger(2, 0);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(ledger.Accept(Views{1, 1}));
  ledger.Cut(5);
  ledger.CommitCut();
  for (int i = 0; i < 3; ++i) ledger.Accept(Views{1, 1});
  EXPECT_EQ(ledger.Restore(0, 5, /*view=*/2, 8), 3);
  EXPECT_EQ(ledger.restored(0), 2u);
  EXPECT_EQ(ledger.restored(1), 0u);
  EXPECT_EQ(ledger.lost(), 3);
  // It goes back to the same state once more: what it had lost before is not lost again.
  for (int i = 0; i < 4; ++i) ledger.Accept(Views{3, 3});
  EXPECT_EQ(ledger.Restore(0, 5, 4, 12), 4);
  EXPECT_EQ(ledger.lost(), 7);
  EXPECT_EQ(ledger.Restore(1, 0, 6, 12), 12);
  EXPECT_EQ(ledger.lost(), 19);
}

// Cuts for histograms and callbacks, say: nothing goes back to those.
TEST(ShardLedger, KnowsWhatWasKeptHoweverManyCutsThereAreBehindIt) {
  for (const int cuts : {30, 31, 32, 1000}) {
    ShardLedger ledger(2, 0);
    for (int i = 0; i < 5; ++i) ledger.Accept(Views{1, 1});
    ledger.Cut(5);
    ledger.CommitCut();
    for (int64_t step = 6; step < 6 + 2 * cuts; step += 2) {  // every other update is of shard 1
      ledger.Accept(Views{1, 1});
      ledger.Accept(Views{0, 1});
      ledger.Cut(step + 1);
    }
    ShardLedger restarted = ShardLedger::FromRecord(2, ledger.ToRecord());
    EXPECT_LT(ledger.ToRecord()["kept"].size(), 4u) << "of what the servers get with each beat";
    for (ShardLedger* one : {&ledger, &restarted}) {
      EXPECT_EQ(one->Restore(0, 5, /*view=*/2, 5 + 2 * cuts), cuts);
      EXPECT_EQ(one->Restore(1, 0, 2, 5 + 2 * cuts), 5 + 2 * cuts) << "the beginning";
      EXPECT_EQ(one->lost(), 5 + 3 * cuts);
    }
  }
}

// It is not known yet whether the files of the newest cut exist.
TEST(ShardLedger, ARestartedChiefMayGoBackToTheNewestCut) {
  ShardLedger ledger(1, 0);
  ledger.Accept(Views{1});
  ledger.Accept(Views{0});
  ledger.Accept(Views{1});
  ledger.Cut(2);
  ledger.Accept(Views{1});
  ShardLedger restarted = ShardLedger::FromRecord(1, ledger.ToRecord());
  EXPECT_EQ(restarted.Restore(0, 2, /*view=*/2, 3), 1);
}

TEST(ShardLedger, ALateReportIsLostIfItWasAcknowledgedBefore) {
  ShardLedger ledger(2, 0);
  EXPECT_EQ(ledger.Restore(0, 0, /*view=*/7, 0), 0);
  EXPECT_TRUE(ledger.Accept(Views{7, 7}));
  EXPECT_TRUE(ledger.Accept(Views{6, 8}));
  EXPECT_FALSE(ledger.Accept(Views{8, 7})) << "shard 0 got it after it went back";
  EXPECT_EQ(ledger.lost(), 2);
  ledger.Cut(3);
  ledger.CommitCut();
  EXPECT_EQ(ledger.Restore(0, 3, 9, 3), 0);
  EXPECT_EQ(ledger.Restore(1, 0, 9, 3), 3);
}

TEST(ShardLedger, WhatPushesNothingToAShardLosesNothingThere) {
  ShardLedger ledger(3, 0);
  ledger.Accept(Views{1, 0, 1});
  ledger.Accept(Views{1});
  EXPECT_EQ(ledger.Restore(1, 0, 2, 2), 0);
  EXPECT_EQ(ledger.Restore(2, 0, 2, 2), 1);
  EXPECT_FALSE(ledger.Accept(Views{3, 0, 0}));
  EXPECT_EQ(ledger.Restore(0, 0, 4, 3), 3);
}

TEST(ShardLedger, ARestartedChiefGoesOnCounting) {
  ShardLedger ledger(2, 10);
  for (int i = 0; i < 6; ++i) ledger.Accept(Views{1, 1});
  ledger.Cut(16);
  ledger.CommitCut();
  ledger.Accept(Views{1, 1});
  ledger.Restore(0, 16, 2, 17);
  ShardLedger restarted = ShardLedger::FromRecord(2, ledger.ToRecord());
  EXPECT_EQ(restarted.lost(), 1);
  EXPECT_EQ(restarted.restored(0), 2u);
  EXPECT_EQ(restarted.Restore(1, 16, 3, 17), 1);
  EXPECT_EQ(restarted.Restore(1, 10, 4, 17), 6) << "the beginning";
  EXPECT_EQ(restarted.Restore(0, 12, 5, 17), 5) << "nobody knows: the steps since";
}

}  // namespace
}  // namespace muster::chief
