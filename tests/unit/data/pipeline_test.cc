#include "common/data/pipeline.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "tests/unit/base/becomes.h"

namespace muster::data {
namespace {

using testing::HasSubstr;
using testing_support::Becomes;

// Examples {i, i * 10 + epoch}, shuffled.
DatasetPtr Numbers(int64_t size) {
  DatasetPtr numbers = FromFunction(size, [](int64_t index, const Context& context) -> Example {
    return {at::full({}, index, at::kLong), at::full({2}, index * 10 + context.epoch, at::kLong)};
  });
  return Shuffle(numbers);
}

std::vector<int64_t> Values(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<int64_t>();
  return {data, data + tensor.numel()};
}

// The batch of one replica: its position and the examples' numbers.
struct Got {
  Position position;
  std::vector<int64_t> values;
  bool operator==(const Got&) const = default;
};

Got Take(Pipeline& pipeline, int replica) {
  absl::StatusOr<LoadedBatch> batch = pipeline.Next(replica);
  EXPECT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->batch.size(), 2u);
  EXPECT_EQ(batch->batch[0].size(0), batch->local.size());
  EXPECT_EQ(batch->batch[1].sizes(), (at::IntArrayRef{batch->local.size(), 2}));
  return {batch->position, Values(batch->batch[0])};
}

TEST(PipelineTest, EachExampleOncePerEpochWhateverTheWorld) {
  for (int world = 1; world <= 5; ++world) {
    for (int64_t batch_size : {1, 2, 3, 5, 8, 23, 40}) {
      for (bool drop : {false, true}) {
        const Sampler sampler(23, batch_size, drop);
        std::vector<std::unique_ptr<Pipeline>> pipelines;
        for (int r = 0; r < world; ++r) {
          pipelines.push_back(Pipeline::Make(Numbers(23), sampler, {}, r, 1, world, {1, 2, 42}));
        }
        for (int64_t epoch = 0; epoch < (sampler.batches_per_epoch() > 0 ? 2 : 0); ++epoch) {
          std::multiset<int64_t> seen;
          for (int64_t b = 0; b < sampler.batches_per_epoch(); ++b) {
            for (auto& pipeline : pipelines) {
              const Got got = Take(*pipeline, 0);
              EXPECT_EQ(got.position, (Position{epoch, b * batch_size}));
              seen.insert(got.values.begin(), got.values.end());
            }
          }
          const std::set<int64_t> distinct(seen.begin(), seen.end());
          EXPECT_EQ(static_cast<int64_t>(seen.size()), sampler.examples_per_epoch());
          EXPECT_EQ(distinct.size(), seen.size());
        }
      }
    }
  }
}

// The global batches are the same ones, in the same order, for any world size and number of local
// replicas.
TEST(PipelineTest, ReplicasTogetherSeeWhatOneWould) {
  const Sampler sampler(23, 5, false);
  auto one = Pipeline::Make(Numbers(23), sampler, {}, 0, 1, 1, {1, 2, 42});
  auto first = Pipeline::Make(Numbers(23), sampler, {}, 0, 2, 5, {2, 3, 42});
  auto second = Pipeline::Make(Numbers(23), sampler, {}, 2, 3, 5, {1, 1, 42});
  for (int step = 0; step < 12; ++step) {
    std::vector<int64_t> together;
    for (int replica = 0; replica < 5; ++replica) {
      const Got got = replica < 2 ? Take(*first, replica) : Take(*second, replica - 2);
      together.insert(together.end(), got.values.begin(), got.values.end());
    }
    EXPECT_EQ(together, Take(*one, 0).values);
  }
}

TEST(PipelineTest, IsTheSameForAnyNumberOfThreadsAndPrefetch) {
  const Sampler sampler(17, 4, false);
  std::vector<std::vector<Got>> runs;
  for (int threads = 0; threads <= 4; ++threads) {
    for (int prefetch : {0, 1, 2, 7}) {
      auto pipeline = Pipeline::Make(Numbers(17), sampler, {}, 0, 2, 3, {threads, prefetch, 1});
      std::vector<Got>& run = runs.emplace_back();
      for (int step = 0; step < 17; ++step) {
        for (int replica : {1, 0}) run.push_back(Take(*pipeline, replica));
      }
      EXPECT_EQ(run, runs[0]) << threads << " threads, prefetch " << prefetch;
    }
  }
}

TEST(PipelineTest, AnotherEpochIsAnotherOrderAndSeenByTheDataset) {
  const Sampler sampler(50, 50, false);
  auto pipeline = Pipeline::Make(Numbers(50), sampler, {}, 0, 1, 1, {1, 2, 42});
  std::vector<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    absl::StatusOr<LoadedBatch> batch = pipeline->Next(0);
    ASSERT_TRUE(batch.ok());
    orders.push_back(Values(batch->batch[0]));
    EXPECT_TRUE(at::equal(batch->batch[1].select(1, 0), batch->batch[0] * 10 + epoch));
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(PipelineTest, ResumesAtAnyPosition) {
  const Sampler sampler(13, 4, false);
  const auto run = [&](Position start, int64_t count) {
    auto pipeline = Pipeline::Make(Numbers(13), sampler, start, 0, 1, 2, {2, 3, 42});
    std::vector<Got> got;
    for (int64_t i = 0; i < count; ++i) got.push_back(Take(*pipeline, 0));
    return got;
  };
  const std::vector<Got> whole = run({}, 12);
  Position position;
  for (int64_t from = 0; from < 12; ++from) {
    const std::vector<Got> expected(whole.begin() + from, whole.end());
    EXPECT_EQ(run(position, 12 - from), expected) << from;
    position = sampler.Next(position);
  }
  EXPECT_EQ(run({0, 13}, 1)[0].position, (Position{1, 0}));
}

TEST(PipelineTest, EndsAfterOneEpochWithoutRepeat) {
  for (int prefetch : {0, 3}) {
    auto pipeline = Pipeline::Make(Numbers(10), Sampler(10, 4, false), {5, 4}, 0, 1, 1,
                                   {2, prefetch, 1, false});
    EXPECT_EQ(Take(*pipeline, 0).position, (Position{5, 4}));
    EXPECT_EQ(Take(*pipeline, 0).position, (Position{5, 8}));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(pipeline->Next(0).status().code(), absl::StatusCode::kOutOfRange);
    }
  }
}

TEST(PipelineTest, ADatasetWithoutAWholeBatch) {
  for (int prefetch : {0, 2}) {
    const Sampler none(3, 4, true);
    auto once = Pipeline::Make(Numbers(3), none, {}, 0, 1, 1, {1, prefetch, 1, false});
    EXPECT_EQ(once->Next(0).status().code(), absl::StatusCode::kOutOfRange);
    auto forever = Pipeline::Make(Numbers(3), none, {}, 0, 1, 1, {1, prefetch, 1, true});
    EXPECT_EQ(ExitCodeOf(forever->Next(0).status()), ExitCode::kConfiguration);
  }
}

TEST(PipelineTest, AnErrorComesAtItsBatchAndSticks) {
  for (bool thrown : {false, true}) {
    for (int prefetch : {0, 1, 5}) {
      DatasetPtr bad =
          FromFunction(20, [thrown](int64_t index, const Context&) -> absl::StatusOr<Example> {
            if (index == 9 && thrown) throw std::runtime_error("no such picture");
            if (index == 9) return DataError("Record 9 is damaged.");
            return Example{at::full({}, index, at::kLong)};
          });
      auto pipeline = Pipeline::Make(bad, Sampler(20, 4, false), {}, 0, 2, 2, {3, prefetch});
      for (int i = 0; i < 2; ++i) EXPECT_TRUE(pipeline->Next(0).ok());
      for (int i = 0; i < 3; ++i) {
        const absl::Status status = pipeline->Next(0).status();
        EXPECT_EQ(ExitCodeOf(status), thrown ? ExitCode::kProgramFailed : ExitCode::kDataDamaged);
        EXPECT_THAT(std::string(Message(status)),
                    HasSubstr(thrown ? "no such picture" : "Record 9 is damaged."));
      }
      for (int i = 0; i < 5; ++i) EXPECT_TRUE(pipeline->Next(1).ok());  // the other replica's part
    }
  }
}

TEST(PipelineTest, AThrowingMapFunctionIsAProgramError) {
  DatasetPtr bad = MapBatch(Numbers(20), [](Batch batch, const Context&, const auto& indices) {
    if (!indices.empty() && indices[0] == 4) throw std::runtime_error("cannot normalise");
    return batch;
  });
  auto pipeline = Pipeline::Make(bad, Sampler(20, 4, false), {}, 0, 1, 1, {2, 2});
  EXPECT_TRUE(pipeline->Next(0).ok());
  const absl::Status status = pipeline->Next(0).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("cannot normalise"));
}

PipelineOptions Counted(int threads, int prefetch, const std::shared_ptr<QueueDepth>& depth) {
  return {.threads = threads, .prefetch = prefetch, .seed = 42, .depth = depth};
}

// A dataset that counts what has been asked of it.
struct Counter {
  std::atomic<int> loaded{0};
  DatasetPtr dataset = FromFunction(1000, [this](int64_t index, const Context&) -> Example {
    ++loaded;
    return {at::full({}, index, at::kLong)};
  });
};

TEST(PipelineTest, LoadsAheadAcrossTheEpochAndNoFurtherThanAsked) {
  for (int taken = 0; taken < 3; ++taken) {
    Counter counter;
    const auto depth = std::make_shared<QueueDepth>();
    const DatasetPtr five = data::Take(counter.dataset, 5);
    auto pipeline = Pipeline::Make(five, Sampler(5, 1, false), {}, 0, 1, 1, Counted(4, 8, depth));
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(pipeline->Next(0).ok());
    // Into the second epoch.
    EXPECT_TRUE(Becomes([&] { return depth->ready == 8; })) << depth->ready;
    // A thread that had begun another batch by then ends with that.
    pipeline.reset();
    EXPECT_EQ(counter.loaded, 8 + taken);
  }
}

TEST(PipelineTest, IsDestroyedWhereverItsConsumersStopped) {
  for (int taken = 0; taken < 6; ++taken) {
    Counter counter;
    auto pipeline = Pipeline::Make(counter.dataset, Sampler(1000, 8, false), {}, 0, 3, 3, {4, 3});
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(pipeline->Next(i % 3).ok());
    pipeline.reset();
    EXPECT_LT(counter.loaded, 1000);
  }
}

TEST(PipelineTest, StopWakesAWaiter) {
  std::atomic<bool> loading{false}, release{false};
  DatasetPtr stuck = FromFunction(8, [&](int64_t index, const Context&) -> Example {
    loading = true;
    EXPECT_TRUE(Becomes([&] { return release.load(); })) << "the load is not released";
    return {at::full({}, index, at::kLong)};
  });
  auto pipeline = Pipeline::Make(stuck, Sampler(8, 4, false), {}, 0, 1, 1, {1, 1});
  absl::Status result;
  std::thread consumer([&] { result = pipeline->Next(0).status(); });
  EXPECT_TRUE(Becomes([&] { return loading.load(); })) << "nothing is loaded";
  pipeline->Stop(PeerLost("Worker 1 was lost."));
  consumer.join();
  EXPECT_EQ(result, PeerLost("Worker 1 was lost."));
  EXPECT_EQ(pipeline->Next(0).status(), PeerLost("Worker 1 was lost."));
  release = true;
}

TEST(PipelineTest, WorkersUseOneIntraOpThreadAndOthersKeepTheirs) {
  const int before = at::get_num_threads();
  std::atomic<int> inside{0};
  DatasetPtr dataset = FromFunction(4, [&](int64_t index, const Context&) -> Example {
    at::Tensor large = at::full({1 << 20}, index, at::kFloat) * 2;  // an operation that would split
    inside = at::get_num_threads();
    return {large.select(0, 0)};
  });
  auto pipeline = Pipeline::Make(dataset, Sampler(4, 4, false), {}, 0, 1, 1, {1, 1});
  ASSERT_TRUE(pipeline->Next(0).ok());
  EXPECT_EQ(inside, 1);
  EXPECT_EQ(at::get_num_threads(), before);
  int later = 0;
  std::thread([&] { later = at::get_num_threads(); }).join();
  EXPECT_EQ(later, before);
}

TEST(PipelineTest, ReplicasMayAskAtTheSameTime) {
  const Sampler sampler(100, 7, false);
  auto pipeline = Pipeline::Make(Numbers(100), sampler, {}, 0, 4, 4, {3, 2, 42});
  std::vector<std::vector<Got>> got(4);
  std::vector<std::thread> consumers;
  for (int replica = 0; replica < 4; ++replica) {
    consumers.emplace_back([&, replica] {
      for (int step = 0; step < 60; ++step) got[replica].push_back(Take(*pipeline, replica));
    });
  }
  for (std::thread& consumer : consumers) consumer.join();
  for (int replica = 0; replica < 4; ++replica) {
    auto alone = Pipeline::Make(Numbers(100), sampler, {}, replica, 1, 4, {0, 0, 42});
    for (const Got& expected : got[replica]) EXPECT_EQ(Take(*alone, 0), expected);
  }
}

TEST(PipelineTest, RefusesAReplicaThatIsNotThere) {
  for (int prefetch : {0, 1}) {
    auto pipeline = Pipeline::Make(Numbers(8), Sampler(8, 4, false), {}, 0, 2, 2, {1, prefetch});
    EXPECT_EQ(ExitCodeOf(pipeline->Next(2).status()), ExitCode::kProgramFailed);
    EXPECT_EQ(ExitCodeOf(pipeline->Next(-1).status()), ExitCode::kProgramFailed);
  }
}

// ---- kAuto

TEST(PipelineTest, AutomaticSettingsGiveTheSameAsFixedOnes) {
  const Sampler sampler(100, 7, false);
  constexpr int kAuto = PipelineOptions::kAuto;
  for (const auto& [threads, prefetch] : {std::pair(kAuto, kAuto), {kAuto, 3}, {2, kAuto}}) {
    auto pipeline = Pipeline::Make(Numbers(100), sampler, {}, 0, 2, 2, {threads, prefetch, 42});
    auto direct = Pipeline::Make(Numbers(100), sampler, {}, 0, 2, 2, {0, 0, 42});
    for (int step = 0; step < 40; ++step)
      for (int replica : {0, 1}) EXPECT_EQ(Take(*pipeline, replica), Take(*direct, replica));
  }
}

// Loading sleeps, so that threads load in parallel on any number of cores.
TEST(PipelineTest, AutomaticThreadsGrowWithSlowLoadsAndChangeNoBatch) {
  DatasetPtr slow = Shuffle(FromFunction(64, [](int64_t index, const Context& context) -> Example {
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    return {at::full({}, index, at::kLong), at::full({2}, index * 10 + context.epoch, at::kLong)};
  }));
  const Sampler sampler(64, 8, false);
  PipelineOptions options;
  options.seed = 42;
  options.cores = 8;
  auto pipeline = Pipeline::Make(slow, sampler, {}, 0, 1, 1, options);
  auto reference = Pipeline::Make(Numbers(64), sampler, {}, 0, 1, 1, {0, 0, 42});
  EXPECT_EQ(pipeline->setting().threads, 1);
  int most = 0;
  // A step takes no time, so that there is always a wait, and another thread is tried. Whether it
  // helped, and stays, is up to the machine; loader_tuner_test has that for machines that it makes.
  for (int step = 0; step < 400 && most < 4; ++step) {
    EXPECT_EQ(Take(*pipeline, 0), Take(*reference, 0));
    most = std::max(most, pipeline->setting().threads);
  }
  EXPECT_GE(most, 2);
}

TEST(PipelineDepth, ASlowConsumerFindsAFullQueue) {
  const auto depth = std::make_shared<QueueDepth>();
  const Sampler sampler(100, 5, false);
  auto pipeline = Pipeline::Make(Numbers(100), sampler, {}, 0, 2, 2, Counted(3, 4, depth));
  EXPECT_EQ(depth->capacity, 8) << "four of each replica";
  EXPECT_TRUE(Becomes([&] { return depth->ready == 8; })) << depth->ready;
  for (int taken = 0; taken < 10; ++taken) {
    ASSERT_TRUE(pipeline->Next(taken % 2).ok());
    EXPECT_LE(depth->ready, 8);
    EXPECT_TRUE(Becomes([&] { return depth->ready == 8; })) << depth->ready;
  }
  pipeline.reset();
  EXPECT_EQ(depth->ready, 0);
  EXPECT_EQ(depth->capacity, 0);
}

TEST(PipelineDepth, ASlowProducerLeavesTheQueueEmpty) {
  const auto depth = std::make_shared<QueueDepth>();
  std::atomic<int64_t> loading{0}, may_load{4};
  const DatasetPtr slow = FromFunction(100, [&](int64_t index, const Context&) -> Example {
    ++loading;
    EXPECT_TRUE(Becomes([&] { return index < may_load; }))
        << "the load of " << index << " is not released";
    return {at::full({}, index, at::kLong)};
  });
  auto pipeline = Pipeline::Make(slow, Sampler(100, 4, false), {}, 0, 1, 1, Counted(1, 2, depth));
  EXPECT_TRUE(Becomes([&] { return loading == 5; })) << "the second batch is loading";
  EXPECT_EQ(depth->ready, 1);
  ASSERT_TRUE(pipeline->Next(0).ok());
  EXPECT_EQ(depth->ready, 0);
  EXPECT_EQ(depth->capacity, 2);
  std::thread consumer([&] { EXPECT_TRUE(pipeline->Next(0).ok()); });
  EXPECT_EQ(depth->ready, 0);
  may_load = 100;
  consumer.join();
  EXPECT_TRUE(Becomes([&] { return depth->ready == 2; })) << depth->ready;
}

TEST(PipelineDepth, IsTheSumOfPipelinesAndFollowsTheirSettings) {
  const auto depth = std::make_shared<QueueDepth>();
  const Sampler sampler(100, 5, false);
  auto one = Pipeline::Make(Numbers(100), sampler, {}, 0, 1, 2, Counted(1, 3, depth));
  auto automatic = Pipeline::Make(Numbers(100), sampler, {}, 1, 1, 2,
                                  Counted(PipelineOptions::kAuto, PipelineOptions::kAuto, depth));
  EXPECT_EQ(depth->capacity, 3 + automatic->setting().prefetch);
  EXPECT_TRUE(Becomes([&] { return depth->ready == depth->capacity; })) << depth->ready;
  one.reset();
  EXPECT_EQ(depth->capacity, automatic->setting().prefetch);
  auto direct = Pipeline::Make(Numbers(100), sampler, {}, 0, 1, 2, Counted(1, 0, depth));
  EXPECT_EQ(depth->capacity, automatic->setting().prefetch) << "no queue";
}

TEST(PipelineDepth, DoesNotCountTheEndOrErrors) {
  const auto depth = std::make_shared<QueueDepth>();
  PipelineOptions options = Counted(1, 8, depth);
  options.repeat = false;
  auto once = Pipeline::Make(Numbers(10), Sampler(10, 5, false), {}, 0, 1, 1, options);
  EXPECT_TRUE(Becomes([&] { return depth->ready == 2; })) << depth->ready;
  ASSERT_TRUE(once->Next(0).ok());
  ASSERT_TRUE(once->Next(0).ok());
  EXPECT_FALSE(once->Next(0).ok());
  EXPECT_FALSE(once->Next(0).ok());
  EXPECT_EQ(depth->ready, 0);
}

TEST(PipelineTest, FixedSettingsStay) {
  auto pipeline = Pipeline::Make(Numbers(100), Sampler(100, 7, false), {}, 0, 1, 1, {3, 5});
  EXPECT_EQ(pipeline->setting().threads, 3);
  EXPECT_EQ(pipeline->setting().prefetch, 5);
  auto direct = Pipeline::Make(Numbers(100), Sampler(100, 7, false), {}, 0, 1, 1, {3, 0});
  EXPECT_EQ(direct->setting().threads, 0);
}

TEST(PipelineTest, FixedThreadsLoadNoMoreAheadThanMemoryHolds) {
  // Views of one value, which take no memory.
  const DatasetPtr large = MapBatch(Numbers(100), [](const Batch& batch, const Context&, auto&) {
    return Batch{at::zeros({1, 1}, at::kByte).expand({batch[0].size(0), int64_t{1} << 32})};
  });
  auto pipeline =
      Pipeline::Make(large, Sampler(100, 10, false), {}, 0, 1, 1, {.threads = 8, .prefetch = -1});
  ASSERT_TRUE(pipeline->Next(0).ok());
  EXPECT_EQ(pipeline->setting().threads, 8);
  EXPECT_EQ(pipeline->setting().prefetch, 2);
}

// ---- Damaged examples

// Examples {i}, of which those that `bad` says are damaged.
DatasetPtr Damaged(int64_t size, std::function<bool(int64_t)> bad) {
  return FromFunction(size, [bad](int64_t index, const Context&) -> absl::StatusOr<Example> {
    if (bad(index)) return DataError(fmt::format("'{}.jpg' is truncated", index));
    return Example{at::full({}, index, at::kLong), at::full({2}, index, at::kLong)};
  });
}

TEST(PipelineTest, SkipsDamagedExamplesAndNamesThem) {
  const auto dataset = Damaged(10, [](int64_t i) { return i == 1 || i == 2 || i >= 8; });
  for (const int prefetch : {0, 2}) {
    PipelineOptions options{1, prefetch};
    options.skip_damaged = true;
    auto pipeline = Pipeline::Make(dataset, Sampler(10, 4, false), {}, 0, 1, 1, options);
    std::vector<std::vector<int64_t>> got;
    std::vector<std::string> damaged;
    for (int step = 0; step < 3; ++step) {
      const auto batch = pipeline->Next(0);
      ASSERT_TRUE(batch.ok()) << batch.status();
      got.push_back(Values(batch->batch[0]));
      EXPECT_EQ(batch->batch[1].sizes(), (at::IntArrayRef{batch->local_examples, 2}));
      EXPECT_EQ(batch->local_examples + static_cast<int64_t>(batch->damaged.size()),
                batch->local.size());
      EXPECT_EQ(batch->global_examples, batch->global.size());
      damaged.insert(damaged.end(), batch->damaged.begin(), batch->damaged.end());
    }
    // The last batch has lost all of its examples.
    EXPECT_THAT(got, testing::ElementsAre(testing::ElementsAre(0, 3),
                                          testing::ElementsAre(4, 5, 6, 7), testing::IsEmpty()));
    EXPECT_THAT(damaged, testing::ElementsAre("'1.jpg' is truncated", "'2.jpg' is truncated",
                                              "'8.jpg' is truncated", "'9.jpg' is truncated"));
  }
}

TEST(PipelineTest, SkipsWhereTheFirstExampleIsDamaged) {
  const auto dataset = Damaged(6, [](int64_t i) { return i < 3; });
  const auto present = LoadPresentExamples(*dataset, {0, 3}, {});
  ASSERT_TRUE(present.ok()) << present.status();
  EXPECT_EQ(present->count, 0);
  EXPECT_EQ(present->batch[1].sizes(), (at::IntArrayRef{0, 2}));
  EXPECT_EQ(present->damaged.size(), 3u);
}

TEST(PipelineTest, SkippingForgivesNothingElse) {
  const auto none = Damaged(3, [](int64_t) { return true; });
  const auto unreadable = LoadPresentExamples(*none, {0, 3}, {});
  EXPECT_EQ(ExitCodeOf(unreadable.status()), ExitCode::kDataDamaged);
  EXPECT_THAT(unreadable.status().message(),
              HasSubstr("none of the examples is readable; the first one: '0.jpg' is truncated"));
  // A program's mistake is none of the data's.
  const auto wrong = FromFunction(3, [](int64_t index, const Context&) -> absl::StatusOr<Example> {
    if (index == 1) return ProgramError("no");
    return Example{at::full({}, index, at::kLong)};
  });
  EXPECT_EQ(ExitCodeOf(LoadPresentExamples(*wrong, {0, 3}, {}).status()), ExitCode::kProgramFailed);
  // Without the option damage is an error, as ever.
  auto pipeline = Pipeline::Make(Damaged(4, [](int64_t i) { return i == 3; }), Sampler(4, 2, false),
                                 {}, 0, 1, 1, {1, 2});
  ASSERT_TRUE(pipeline->Next(0).ok());
  EXPECT_EQ(ExitCodeOf(pipeline->Next(0).status()), ExitCode::kDataDamaged);
}

TEST(PipelineTest, WhatIsSkippedDoesNotDependOnTheWorld) {
  const auto dataset = Shuffle(Damaged(23, [](int64_t i) { return i % 5 == 1; }));
  PipelineOptions options{2, 2, 7};
  options.skip_damaged = true;
  auto one = Pipeline::Make(dataset, Sampler(23, 6, false), {}, 0, 1, 1, options);
  auto three = Pipeline::Make(dataset, Sampler(23, 6, false), {}, 0, 3, 3, options);
  for (int step = 0; step < 8; ++step) {
    std::vector<int64_t> together;
    for (int r = 0; r < 3; ++r) {
      const auto part = three->Next(r);
      ASSERT_TRUE(part.ok());
      const auto values = Values(part->batch[0]);
      together.insert(together.end(), values.begin(), values.end());
    }
    const auto whole = one->Next(0);
    ASSERT_TRUE(whole.ok());
    EXPECT_EQ(together, Values(whole->batch[0]));
  }
}

// ---- Replicas with examples of their own

TEST(PipelineTest, SharesComeWholeOnceAnEpoch) {
  const std::vector<int64_t> shares = {7, 3, 5};
  const Sampler sampler = Sampler::FromShares(shares, 6, false, 0);  // two each
  ASSERT_EQ(sampler.batches_per_epoch(), 4);
  std::vector<std::vector<int64_t>> seen(3);
  std::vector<int64_t> sizes;
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (int r = 0; r < 3; ++r)
    pipelines.push_back(Pipeline::Make(Numbers(shares[r]), sampler, {}, r, 1, 3, {1, 2, 42}));
  for (int step = 0; step < 4; ++step) {
    int64_t together = 0, global = 0;
    for (int r = 0; r < 3; ++r) {
      const auto batch = pipelines[r]->Next(0);
      ASSERT_TRUE(batch.ok()) << batch.status();
      for (int64_t value : Values(batch->batch[0])) seen[r].push_back(value);
      together += batch->local_examples;
      global = batch->global_examples;
      EXPECT_EQ(batch->next == (Position{1, 0}), step == 3);
    }
    EXPECT_EQ(together, global);
    sizes.push_back(global);
  }
  EXPECT_THAT(sizes, testing::ElementsAre(6, 5, 3, 1));
  for (int r = 0; r < 3; ++r) {
    std::sort(seen[r].begin(), seen[r].end());
    std::vector<int64_t> all(static_cast<size_t>(shares[r]));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    EXPECT_EQ(seen[r], all);
  }
}

}  // namespace
}  // namespace muster::data
