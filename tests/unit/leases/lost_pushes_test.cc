// Which pushes of lost workers are in parts only.
#include "chief/lost_pushes.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

class LostPushesTest : public ::testing::Test {
 protected:
  // Of worker 0: `chunks` of the `of` that belong to the push are in the shard.
  void Take(int shard, uint64_t sequence, int chunks, int of, int shards,
            uint64_t incarnation = 7) {
    google::protobuf::RepeatedPtrField<proto::LostPush> told;
    proto::LostPush& push = *told.Add();
    push.set_shard(shard);
    push.set_incarnation(incarnation);
    push.set_sequence(sequence);
    push.set_chunks(chunks);
    push.set_of_chunks(of);
    push.set_shards(shards);
    pushes_.Take(told);
  }
  int64_t torn(uint64_t told = 0) { return pushes_.torn({{{0, 7}, told}}); }

  LostPushes pushes_;
};

TEST_F(LostPushesTest, AWholeOneIsNotTorn) {
  EXPECT_EQ(torn(), 0);
  Take(0, 5, 3, 3, 2);
  EXPECT_EQ(torn(), 1) << "the other shard has nothing of it, or has not told yet";
  Take(1, 5, 1, 1, 2);
  EXPECT_EQ(torn(), 0);
  Take(2, 4, 1, 1, 3);
  EXPECT_EQ(torn(), 0) << "the one before did go there";
}

TEST_F(LostPushesTest, OneThatIsTornBetweenShardsCountsOnce) {
  Take(0, 5, 3, 3, 2);
  Take(1, 4, 2, 2, 2);
  EXPECT_EQ(torn(), 1);
  Take(0, 9, 1, 0, 0, /*incarnation=*/8);
  Take(1, 9, 2, 0, 0, 8);
  EXPECT_EQ(torn(), 2) << "another process's, in parts on both";
  Take(0, 5, 3, 3, 2);
  EXPECT_EQ(torn(), 2) << "told again";
}

TEST_F(LostPushesTest, ChunksThatAreMissingTearIt) {
  Take(0, 5, 2, 3, 1);
  EXPECT_EQ(torn(), 1);
  Take(0, 5, 3, 0, 0);  // by another ps, which had more of it and did not hear of its end
  EXPECT_EQ(torn(), 0);
}

TEST_F(LostPushesTest, WhatTheWorkerCalledWholeIsWhole) {
  Take(0, 5, 3, 0, 0);
  EXPECT_EQ(torn(4), 1);
  EXPECT_EQ(torn(5), 0);
}

}  // namespace
}  // namespace muster
