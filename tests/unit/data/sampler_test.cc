#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "common/data/pipeline.h"

namespace muster::data {
namespace {

TEST(SamplerTest, KeepsOrDropsTheShortLastBatch) {
  const Sampler kept(10, 4, /*drop_remainder=*/false), dropped(10, 4, true);
  EXPECT_EQ(kept.batches_per_epoch(), 3);
  EXPECT_EQ(kept.examples_per_epoch(), 10);
  EXPECT_EQ(dropped.batches_per_epoch(), 2);
  EXPECT_EQ(dropped.examples_per_epoch(), 8);
  EXPECT_EQ(kept.BatchEnd({0, 8}), 10);
  EXPECT_EQ(kept.Next({0, 4}), (Position{0, 8}));
  EXPECT_EQ(kept.Next({0, 8}), (Position{1, 0}));
  EXPECT_EQ(dropped.Next({3, 4}), (Position{4, 0}));
}

TEST(SamplerTest, EndsAnEpochAfterTheGivenSteps) {
  const Sampler two(10, 4, false, 2), many(10, 4, false, 100);
  EXPECT_EQ(two.batches_per_epoch(), 2);
  EXPECT_EQ(two.examples_per_epoch(), 8);
  EXPECT_EQ(two.Next({0, 4}), (Position{1, 0}));
  EXPECT_EQ(many.examples_per_epoch(), 10);
}

TEST(SamplerTest, KnowsEmptyAndTinyDatasets) {
  EXPECT_EQ(Sampler(0, 4, false).batches_per_epoch(), 0);
  EXPECT_EQ(Sampler(3, 4, true).batches_per_epoch(), 0);
  EXPECT_EQ(Sampler(3, 4, false).batches_per_epoch(), 1);
  EXPECT_EQ(Sampler(3, 4, false).BatchEnd({0, 0}), 3);
  EXPECT_EQ(Sampler(INT64_MAX, INT64_MAX, false).BatchEnd({0, 0}), INT64_MAX);
}

TEST(SamplerTest, ComesBackToTheGridFromWithinABatch) {
  const Sampler sampler(20, 8, true);
  EXPECT_EQ(sampler.BatchEnd({0, 6}), 8);
  EXPECT_EQ(sampler.BatchEnd({0, 9}), 16);
}

TEST(SamplerTest, RefusesWhatCannotBe) {
  EXPECT_THROW(Sampler(Dataset::kUnknownSize, 4, false), std::invalid_argument);
  EXPECT_THROW(Sampler(10, 0, false), std::invalid_argument);
}

TEST(ReplicaSliceTest, IsContiguousAndTheFirstGetOneMore) {
  for (int64_t size : {0, 1, 2, 3, 5, 7, 64, 1000}) {
    for (int replicas = 1; replicas <= 7; ++replicas) {
      int64_t at = 100;
      for (int r = 0; r < replicas; ++r) {
        const Slice slice = ReplicaSlice(100, 100 + size, r, replicas);
        EXPECT_EQ(slice.begin, at);
        EXPECT_EQ(slice.size(), size / replicas + (r < size % replicas ? 1 : 0));
        at = slice.end;
      }
      EXPECT_EQ(at, 100 + size);
    }
  }
}

TEST(SamplerTest, SharesLastUntilTheSlowestIsThrough) {
  // Parts of 2, 2 and 1: replica 2 takes 5 batches for its 5 examples.
  const Sampler sampler = Sampler::FromShares({4, 10, 5}, 5, false, 0);
  EXPECT_EQ(sampler.batches_per_epoch(), 5);
  EXPECT_EQ(sampler.examples_per_epoch(), 25);
  Position position;
  std::vector<int64_t> examples;
  for (int step = 0; step < 5; ++step) {
    examples.push_back(sampler.Examples(position));
    EXPECT_EQ(sampler.Local(position, 0, 3).size(), step < 2 ? 2 : 0);
    EXPECT_EQ(sampler.Local(position, 1, 3).begin, 2 * step);
    EXPECT_EQ(sampler.Local(position, 2, 3).size(), 1);
    position = sampler.Next(position);
  }
  EXPECT_EQ(position, (Position{1, 0}));
  EXPECT_THAT(examples, testing::ElementsAre(5, 5, 3, 3, 3));
}

TEST(SamplerTest, SharesThatAreDroppedEndWithTheFirstWholePartThatIsMissing) {
  EXPECT_EQ(Sampler::FromShares({4, 10, 5}, 5, true, 0).batches_per_epoch(), 2);
  EXPECT_EQ(Sampler::FromShares({4, 1, 5}, 5, true, 0).batches_per_epoch(), 0);
  EXPECT_EQ(Sampler::FromShares({4, 10, 5}, 5, false, 3).batches_per_epoch(), 3);
  // A global batch that is smaller than the number of replicas leaves some without a part at all.
  const Sampler few = Sampler::FromShares({3, 3, 3}, 2, false, 0);
  EXPECT_EQ(few.batches_per_epoch(), 3);
  EXPECT_EQ(few.Local({0, 2}, 2, 3).size(), 0);
}

}  // namespace
}  // namespace muster::data
