#include "ps/shard_store.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <thread>

namespace muster::ps {
namespace {

using push_pull::ChunkPush;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kLife = 77;  // a worker's incarnation

class DenseStoreTest : public ::testing::Test {
 protected:
  DenseStoreTest() {
    options_.chunks = {{0, 0, 4, 0}, {0, 4, 7, 0}, {0, 7, 9, 1}};
    options_.rules = {SgdSpec{}, AdamSpec{}};
    store_ = ShardStore::Make(options_);
  }
  void Fill() {
    for (int c = 0; c < 3; ++c) ASSERT_TRUE(store_->Fill(c, std::vector<float>(Size(c), 10)).ok());
    for (int worker : {0, 1}) store_->Admit(worker, kLife);
  }
  size_t Size(int chunk) const { return options_.chunks[chunk].elements(); }
  absl::StatusOr<push_pull::Pushed> Push(int chunk, push_pull::PushKey key, float gradient,
                                         int64_t pulled = 0) {
    const std::vector<float> gradients(Size(chunk), gradient);
    pulled_.assign(Size(chunk), -1);
    return store_->Apply(chunk, {key, pulled, 0.5, gradients}, pulled_);
  }

  ShardStore::Options options_;
  std::unique_ptr<ShardStore> store_;
  std::vector<float> pulled_;
};

TEST_F(DenseStoreTest, APushIsInThePullThatComesWithIt) {
  Fill();
  const auto pushed = Push(0, {0, kLife, 1}, 2);
  ASSERT_TRUE(pushed.ok());
  EXPECT_TRUE(pushed->applied);
  EXPECT_EQ(pushed->updates, 1);
  EXPECT_THAT(pulled_, ElementsAre(9, 9, 9, 9));
  std::vector<float> other(3);
  EXPECT_EQ(*store_->Pull(1, other), 0);
  EXPECT_THAT(other, Each(10));
}

TEST(ShardStore, WhatALargeServerAnswersIntoSharedMemoryIsThePull) {
  constexpr int64_t kElements = 3 << 20;  // its own, and an odd chunk in front of them
  ShardStore::Options options;
  options.chunks = {{0, 0, 3, 0}, {0, 3, kElements, 0}};
  options.rules = {SgdSpec{}};
  const auto store = ShardStore::Make(options);
  std::vector<float> memory(kElements, -1), gradient(kElements - 3);
  std::iota(gradient.begin(), gradient.end(), 0.f);
  ASSERT_TRUE(store->Fill(0, std::vector<float>(3)).ok());
  ASSERT_TRUE(store->Fill(1, std::vector<float>(kElements - 3, 10)).ok());
  store->Admit(0, kLife);
  ChunkPush push{{0, kLife, 1}, 0, 0.5, gradient};
  push.shared = true;
  ASSERT_TRUE(store->Apply(1, push, std::span(memory).subspan(3)).ok());
  EXPECT_EQ(memory[2], -1);
  EXPECT_EQ(memory[3], 10);
  EXPECT_EQ(std::vector<float>(memory.begin() + 3, memory.end()), store->Copy(1)->parameters);
}

TEST_F(DenseStoreTest, ARetryCountsOnceInEachChunk) {
  Fill();
  EXPECT_TRUE(Push(0, {0, kLife, 1}, 2)->applied);
  for (int chunk : {0, 1, 2}) EXPECT_EQ(Push(chunk, {0, kLife, 1}, 2)->applied, chunk != 0);
  EXPECT_EQ(store_->Copy(0)->updates, 1);
  EXPECT_FALSE(Push(2, {0, kLife, 1}, 2)->applied);
  EXPECT_TRUE(Push(2, {1, kLife, 1}, 2)->applied) << "another worker has its own numbers";
}

TEST_F(DenseStoreTest, StalenessCountsTheUpdatesOfOthersSinceThePull) {
  Fill();
  EXPECT_EQ(Push(0, {0, kLife, 1}, 1, /*pulled=*/0)->staleness, 0);
  EXPECT_EQ(Push(0, {1, kLife, 1}, 1, /*pulled=*/0)->staleness, 1);
  EXPECT_EQ(Push(0, {1, kLife, 2}, 1, /*pulled=*/2)->staleness, 0);
  EXPECT_EQ(Push(0, {0, kLife, 2}, 1, /*pulled=*/1)->staleness, 2);
}

TEST_F(DenseStoreTest, AnEmptyServerServesNothing) {
  store_->Admit(0, kLife);
  ASSERT_TRUE(store_->Fill(0, std::vector<float>(4, 1)).ok());
  EXPECT_FALSE(store_->serving());
  std::vector<float> out(4);
  EXPECT_TRUE(absl::IsUnavailable(store_->Pull(0, out).status()));
  EXPECT_TRUE(absl::IsUnavailable(Push(0, {0, kLife, 1}, 1).status()));
  EXPECT_THAT(std::string(Message(store_->Pull(0, out).status())),
              HasSubstr("2 of 3 chunks hold nothing yet"));
  EXPECT_FALSE(store_->Copy(1).ok());
}

TEST_F(DenseStoreTest, WhatDoesNotFitChangesNothing) {
  Fill();
  std::vector<float> four(4), three(3);
  for (const absl::Status& status :
       {store_->Fill(0, three), store_->Fill(3, three), store_->Fill(-1, three),
        store_->Pull(0, three).status(), store_->Pull(9, three).status(),
        store_->Apply(0, {{0, kLife, 1}, 0, 0.5, three}, {}).status(),
        store_->Apply(0, {{0, kLife, 1}, 0, 0.5, four}, three).status(), store_->Restore(0, {}),
        store_->Restore(0, {four, {four}}), store_->Restore(2, {{1, 2}, {{1, 2}, {1, 2, 3}}}),
        store_->Copy(3).status()}) {
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("chunk"));
  }
  std::vector<float> out(4);
  EXPECT_EQ(*store_->Pull(0, out), 0);
  EXPECT_THAT(out, Each(10));
}

// Frozen chunks stay unchanged when pushes arrive before they are read, and have no copy otherwise.
TEST_F(DenseStoreTest, FrozenChunksStayAsTheyWere) {
  Fill();
  for (const int chunk : {0, 1, 2}) ASSERT_TRUE(Push(chunk, {0, kLife, 1}, 2).ok());
  std::vector<ChunkState> before;
  std::vector<std::shared_ptr<ShardStore::FrozenChunk>> frozen;
  for (const int chunk : {0, 1, 2}) {
    before.push_back(*store_->Copy(chunk));
    frozen.push_back(*store_->FreezeDense(chunk));
  }
  ASSERT_TRUE(Push(0, {1, kLife, 1}, 2)->applied);
  ASSERT_TRUE(Push(0, {1, kLife, 2}, 2)->applied);
  ASSERT_TRUE(store_->Fill(1, std::vector<float>(Size(1), 3)).ok());
  for (const int chunk : {0, 1, 2})
    EXPECT_EQ(*store_->Read(chunk, frozen[chunk].get()), before[chunk]);
  EXPECT_FALSE(store_->Read(0, frozen[0].get()).ok()) << "it is gone";
  // The next ones are of now.
  ASSERT_TRUE(Push(2, {1, kLife, 1}, 2)->applied);
  const auto again = *store_->FreezeDense(2);
  before[2] = *store_->Copy(2);
  ASSERT_TRUE(Push(2, {1, kLife, 2}, 2)->applied);
  EXPECT_EQ(*store_->Read(2, again.get()), before[2]);
  EXPECT_FALSE(store_->FreezeDense(3).ok());
}

// A cut of a chief that died may still be there when its successor makes one of the same state.
TEST_F(DenseStoreTest, TwoFrozenChunksOfOneStateAreRead) {
  Fill();
  const ChunkState before = *store_->Copy(0);
  const auto first = *store_->FreezeDense(0), second = *store_->FreezeDense(0),
             third = *store_->FreezeDense(0);
  EXPECT_EQ(*store_->Read(0, first.get()), before);
  EXPECT_EQ(*store_->Read(0, second.get()), before);
  ASSERT_TRUE(Push(0, {0, kLife, 1}, 2)->applied);
  EXPECT_EQ(*store_->Read(0, third.get()), before);
  EXPECT_FALSE(store_->Read(0, second.get()).ok()) << "it is gone";
}

TEST_F(DenseStoreTest, FrozenChunksAreReadWhileOthersPush) {
  Fill();
  std::atomic<bool> end = false;
  std::thread pushes([&] {
    const std::vector<float> gradient(Size(0), 1);
    for (int64_t n = 1; !end; ++n)
      EXPECT_TRUE(
          store_->Apply(0, {{0, kLife, static_cast<uint64_t>(n)}, 0, 1, gradient}, {}).ok());
  });
  for (int i = 0; i < 200; ++i) {
    const auto frozen = *store_->FreezeDense(0);
    const ChunkState state = *store_->Read(0, frozen.get());
    EXPECT_THAT(state.parameters, Each(10.f - static_cast<float>(state.updates)));
  }
  end = true;
  pushes.join();
}

TEST_F(DenseStoreTest, ALostWorkersLatePushIsRefused) {
  Fill();
  EXPECT_TRUE(Push(0, {0, kLife, 1}, 1).ok());
  store_->Expel(0);
  store_->Expel(0);
  EXPECT_TRUE(absl::IsAborted(Push(1, {0, kLife, 1}, 1).status()));
  store_->Admit(0, kLife + 1);
  EXPECT_TRUE(absl::IsAborted(Push(1, {0, kLife, 1}, 1).status()));
  EXPECT_TRUE(Push(0, {0, kLife + 1, 1}, 1)->applied) << "another process counts from 1 again";
  store_->Expel(5);
  EXPECT_TRUE(Push(0, {0, kLife + 1, 2}, 1)->applied) << "another worker was lost";
}

TEST_F(DenseStoreTest, RefusesAPushThatCannotBeMeant) {
  Fill();
  for (const int chunk : {0, 1, 2}) ASSERT_TRUE(Push(chunk, {0, kLife, 1}, 2).ok());
  const auto before = *store_->Copy(0);
  const std::vector<float> gradient(4, 1);
  const auto expect_refused = [&](ChunkPush push, const std::string& sentence) {
    push.key = {0, kLife, 2};
    push.gradient = gradient;
    for (const auto& pushed :
         {store_->Apply(0, push, {}), store_->Replay(0, push, before.updates + 1)}) {
      EXPECT_EQ(ExitCodeOf(pushed.status()), ExitCode::kConfiguration) << pushed.status();
      EXPECT_THAT(std::string(Message(pushed.status())), HasSubstr(sentence));
    }
    EXPECT_EQ(*store_->Copy(0), before);
  };
  expect_refused({.learning_rate = -0.5}, "chunk 0: -0.5 is no learning rate");
  expect_refused({.learning_rate = std::nan("")}, "nan is no learning rate");
  expect_refused({.learning_rate = HUGE_VAL}, "inf is no learning rate");
  expect_refused({.pulled = -1}, "after -1 updates");
  EXPECT_TRUE(Push(0, {0, kLife, 2}, 2)->applied);
}

TEST_F(DenseStoreTest, WhatIsNotFiniteIsRefusedAndChangesNothing) {
  Fill();
  for (const int chunk : {0, 1, 2}) {
    ASSERT_TRUE(Push(chunk, {0, kLife, 1}, 2).ok());
    const auto before = *store_->Copy(chunk);
    for (const float odd : {HUGE_VALF, -HUGE_VALF, std::nanf("")})
      for (const bool floor : {false, true})
        for (int again = 0; again < 2; ++again) {
          std::vector<float> gradient(Size(chunk), 1);
          gradient.back() = odd;
          ChunkPush push{{0, kLife, 2}, 0, 0.5, gradient};
          push.floor = floor;
          pulled_.assign(Size(chunk), -1);
          const auto pushed = store_->Apply(chunk, push, pulled_);
          ASSERT_TRUE(pushed.ok()) << pushed.status();
          EXPECT_TRUE(pushed->refused);
          EXPECT_FALSE(pushed->applied);
          EXPECT_EQ(pushed->updates, 1);
          EXPECT_EQ(pulled_, before.parameters);
          EXPECT_EQ(*store_->Copy(chunk), before);
        }
  }
  // The same number counts when what comes under it can be applied, as that of another chunk.
  const auto pushed = Push(0, {0, kLife, 2}, 2);
  EXPECT_TRUE(pushed->applied);
  EXPECT_FALSE(pushed->refused);
  store_->Expel(0);
  std::vector<float> odd(4, std::nanf(""));
  EXPECT_TRUE(absl::IsAborted(store_->Apply(0, {{0, kLife, 3}, 0, 0.5, odd}, {}).status()));
}

TEST_F(DenseStoreTest, ACopyRestoredElsewhereGoesOnTheSame) {
  Fill();
  for (int chunk : {0, 1, 2}) ASSERT_TRUE(Push(chunk, {0, kLife, 1}, 3).ok());
  const auto backup = ShardStore::Make(options_);
  for (int chunk : {0, 1, 2}) {
    auto copy = store_->Copy(chunk);
    ASSERT_TRUE(copy.ok());
    ASSERT_TRUE(backup->Restore(chunk, *std::move(copy)).ok());
  }
  backup->Admit(0, kLife);
  const std::vector<float> gradient(2, 0.25f);
  EXPECT_FALSE(backup->Apply(2, {{0, kLife, 1}, 0, 0.5, gradient}, {})->applied)
      << "it knows what is in it";
  for (ShardStore* store : {store_.get(), backup.get()})
    ASSERT_TRUE(store->Apply(2, {{0, kLife, 2}, 1, 0.5, gradient}, {}).ok());
  EXPECT_EQ(*store_->Copy(2), *backup->Copy(2));
}

TEST_F(DenseStoreTest, ABackupAppliesWhatThePrimaryDidInItsOrder) {
  Fill();
  const auto backup = ShardStore::Make(options_);
  const std::vector<float> gradient(3, 2);
  const auto replay = [&](int worker, uint64_t sequence, int64_t number) {
    return backup->Replay(1, {{worker, kLife, sequence}, 0, 0.5, gradient}, number);
  };
  EXPECT_TRUE(absl::IsUnavailable(replay(0, 1, 1).status()));
  ASSERT_TRUE(backup->Restore(1, *store_->Copy(1)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(replay(0, 1, 2).status()));
  ASSERT_TRUE(replay(0, 1, 1).ok()) << "though no worker was admitted, and other chunks are empty";
  EXPECT_TRUE(absl::IsFailedPrecondition(replay(0, 1, 1).status()));
  ASSERT_TRUE(Push(1, {0, kLife, 1}, 2).ok());
  EXPECT_EQ(*backup->Copy(1), *store_->Copy(1));
}

TEST_F(DenseStoreTest, NoUpdateIsLostAmongManyThreads) {
  Fill();
  constexpr int kWorkers = 4, kPushes = 500;
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    store_->Admit(worker, kLife);
    threads.emplace_back([this, worker] {
      std::vector<float> out(4);
      int64_t pulled = 0;
      const std::vector<float> gradient(4, 2);
      for (uint64_t n = 1; n <= kPushes; ++n) {
        const auto pushed = store_->Apply(0, {{worker, kLife, n}, pulled, 0.5, gradient}, out);
        ASSERT_TRUE(pushed.ok() && pushed->applied);
        ASSERT_EQ(pushed->staleness, pushed->updates - 1 - pulled) << "what others did meanwhile";
        pulled = pushed->updates;
        ASSERT_EQ(out[0], 10 - static_cast<float>(pulled)) << "a pull shows whole updates";
        ASSERT_EQ(out[3], out[0]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->Copy(0)->updates, kWorkers * kPushes);
  EXPECT_EQ(store_->Copy(0)->parameters[0], 10 - kWorkers * kPushes);
}

}  // namespace
}  // namespace muster::ps
