// Data of unknown size: streams, how they are read again, and the pipeline that finds their end.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include <atomic>

#include "common/data/pipeline.h"

namespace muster::data {
namespace {

using ::testing::HasSubstr;

// 100 * pass + i for i below `size`.
class NumberStream final : public Stream {
 public:
  NumberStream(int64_t pass, int64_t first, int64_t size, std::atomic<int>* read)
      : pass_(pass), next_(first), size_(size), read_(read) {}
  absl::StatusOr<Example> Next() override {
    if (next_ >= size_) return absl::OutOfRangeError("no more");
    ++*read_;
    return Example{at::full({}, pass_ * 100 + next_++, at::kLong)};
  }

 private:
  const int64_t pass_;
  int64_t next_;
  const int64_t size_;
  std::atomic<int>* const read_;
};

struct Source {
  explicit Source(int64_t size, Reopen reopen = Reopen::kFromStart)
      : dataset(FromStream(
            [this, size](const Context& context, int64_t first) {
              opened.emplace_back(context.epoch, first);
              return std::make_unique<NumberStream>(context.epoch, first, size, &read);
            },
            reopen)) {}
  std::vector<std::pair<int64_t, int64_t>> opened;
  std::atomic<int> read = 0;
  const DatasetPtr dataset;
};

std::vector<int64_t> Values(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  const auto* data = whole.const_data_ptr<int64_t>();
  return {data, data + whole.numel()};
}

// The global batches that `world` replicas get together until `count` of them, as numbers; where
// each one starts.
struct Seen {
  std::vector<std::vector<int64_t>> batches;
  std::vector<Position> positions, next, next_data;
};
Seen Read(const DatasetPtr& dataset, StreamPlan plan, int world, int count) {
  Seen seen;
  std::vector<std::unique_ptr<Pipeline>> replicas;
  for (int r = 0; r < world; ++r)
    replicas.push_back(Pipeline::MakeStream(dataset, plan, r, world, PipelineOptions()));
  for (int b = 0; b < count; ++b) {
    std::vector<int64_t> all;
    for (int r = 0; r < world; ++r) {
      auto loaded = replicas[r]->Next(0);
      EXPECT_TRUE(loaded.ok()) << loaded.status();
      if (!loaded.ok()) return seen;
      EXPECT_EQ(loaded->batch[0].size(0), loaded->local.size());
      for (const int64_t value : Values(loaded->batch[0])) all.push_back(value);
      if (r > 0) {
        EXPECT_EQ(loaded->next, seen.next.back()) << "all replicas see the same end";
        continue;
      }
      seen.positions.push_back(loaded->position);
      seen.next.push_back(loaded->next);
      seen.next_data.push_back(loaded->next_data);
    }
    seen.batches.push_back(all);
  }
  return seen;
}

StreamPlan PlanOf(int64_t batch) {
  StreamPlan plan;
  plan.global_batch_size = batch;
  return plan;
}

class StreamOverReplicas : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(World, StreamOverReplicas, ::testing::Values(1, 2, 3, 5));

TEST_P(StreamOverReplicas, EachExampleOnceAndTheLastBatchIsShort) {
  Source source(10);
  const Seen seen = Read(source.dataset, PlanOf(4), GetParam(), 4);
  EXPECT_EQ(seen.batches, (std::vector<std::vector<int64_t>>{
                              {0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}, {100, 101, 102, 103}}));
  EXPECT_EQ(seen.next[1], (Position{0, 8}));
  EXPECT_EQ(seen.next[2], (Position{1, 0}));
  EXPECT_EQ(source.opened.front(), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_LE(source.opened.size(), 3u) << "each pass is opened once for all replicas";
}

TEST_P(StreamOverReplicas, AWholeLastBatchEndsThePassWithIt) {
  Source source(8);
  const Seen seen = Read(source.dataset, PlanOf(4), GetParam(), 3);
  EXPECT_EQ(seen.next[0], (Position{0, 4}));
  EXPECT_EQ(seen.next[1], (Position{1, 0})) << "known with the batch";
  EXPECT_EQ(seen.batches[2], (std::vector<int64_t>{100, 101, 102, 103}));
}

TEST_P(StreamOverReplicas, AShortLastBatchMayBeDropped) {
  Source source(10);
  StreamPlan plan = PlanOf(4);
  plan.drop_remainder = true;
  const Seen seen = Read(source.dataset, plan, GetParam(), 3);
  EXPECT_EQ(seen.next[1], (Position{1, 0}));
  EXPECT_EQ(seen.batches[2], (std::vector<int64_t>{100, 101, 102, 103}));
}

TEST_P(StreamOverReplicas, ShortEpochsGoOnInTheStream) {
  Source source(10);
  StreamPlan plan = PlanOf(2);
  plan.steps_per_epoch = 2;
  const Seen seen = Read(source.dataset, plan, GetParam(), 6);
  EXPECT_EQ(seen.batches,
            (std::vector<std::vector<int64_t>>{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {100, 101}}))
      << "as Keras does";
  EXPECT_EQ(seen.next, (std::vector<Position>{{0, 2}, {1, 0}, {1, 2}, {2, 0}, {3, 0}, {3, 2}}))
      << "the end of the stream ends an epoch too";
  EXPECT_EQ(seen.next_data[3], (Position{0, 8}));
  EXPECT_EQ(seen.next_data[4], (Position{1, 0}));
}

TEST_P(StreamOverReplicas, GoesOnWhereItWasInEveryWayOfReopening) {
  for (const Reopen reopen : {Reopen::kAtExample, Reopen::kFromStart}) {
    Source whole(11, reopen);
    const Seen want = Read(whole.dataset, PlanOf(3), 2, 8);
    for (size_t cut = 0; cut < 7; ++cut) {
      Source source(11, reopen);
      StreamPlan plan = PlanOf(3);
      plan.start = want.next[cut];
      plan.start_data = want.next_data[cut];
      const int left = static_cast<int>(want.batches.size() - cut - 1);
      const Seen rest = Read(source.dataset, plan, GetParam(), left);
      EXPECT_EQ(rest.batches, std::vector<std::vector<int64_t>>(want.batches.begin() + cut + 1,
                                                                want.batches.end()));
      ASSERT_FALSE(source.opened.empty());
      EXPECT_EQ(source.opened[0].second, reopen == Reopen::kAtExample ? plan.start_data.offset : 0);
    }
  }
}

TEST(Stream, OneThatIsNeverReadAgainSaysSoOrGoesOnAsItDeclares) {
  StreamPlan plan = PlanOf(3);
  plan.start = plan.start_data = {0, 6};
  Source never(20, Reopen::kNever);
  const auto refused =
      Pipeline::MakeStream(never.dataset, plan, 0, 1, PipelineOptions())->Next(0).status();
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("cannot be opened at example 6 of pass 0"));
  Source live(20, Reopen::kAsItComes);
  EXPECT_EQ(Read(live.dataset, plan, 1, 1).batches[0], (std::vector<int64_t>{0, 1, 2}));
  // A new pass is its beginning: nothing to go back to.
  plan.start = plan.start_data = {1, 0};
  EXPECT_EQ(Read(never.dataset, plan, 1, 1).batches[0], (std::vector<int64_t>{100, 101, 102}));
}

TEST(Stream, AReaderThatIsNotFarBehindFindsItInMemory) {
  Source source(1000, Reopen::kNever);
  const Context context;
  ASSERT_EQ(*source.dataset->Available(0, 10, context), 10);
  ASSERT_EQ(*source.dataset->Available(30, 40, context), 10);
  EXPECT_EQ((*source.dataset->Get(0, context))[0].item<int64_t>(), 0);
  ASSERT_EQ(*source.dataset->Available(90, 100, context), 10);
  EXPECT_EQ((*source.dataset->Get(45, context))[0].item<int64_t>(), 45);
  EXPECT_FALSE(source.dataset->Get(10, context).ok()) << "memory is bounded";
  EXPECT_EQ(source.read, 100);
}

TEST(Stream, TransformationsKnowItsEnd) {
  Source source(7);
  const DatasetPtr mapped = MapBatch(
      Map(Skip(source.dataset, 2),
          [](Example e, const Context&, int64_t) { return Example{e[0] * 2}; }),
      [](Batch batch, const Context&, const std::vector<int64_t>&) { return Batch{batch[0] + 1}; });
  EXPECT_EQ(*mapped->Available(0, 10, {}), 5);
  const DatasetPtr zipped = *Zip({mapped, Take(source.dataset, 3)});
  EXPECT_EQ(*zipped->Available(0, 10, {}), 3);
  EXPECT_EQ(*zipped->Available(4, 10, {}), 0);
  const DatasetPtr pairs = BatchExamples(source.dataset, 2);
  EXPECT_EQ(*pairs->Available(0, 10, {}), 4);
  EXPECT_EQ((*pairs->Get(3, {}))[0].size(0), 1);
  EXPECT_EQ(*Repeat(Take(FromFunction(3,
                                      [](int64_t i, const Context&) -> Example {
                                        return {at::full({}, i, at::kLong)};
                                      }),
                         -1),
                    -1)
                 ->Available(100, 110, {}),
            10);
  // Five replicas of which three have nothing: their slices look like the others'.
  StreamPlan plan = PlanOf(5);
  const Seen seen = Read(mapped, plan, 8, 1);
  EXPECT_EQ(seen.batches[0], (std::vector<int64_t>{5, 7, 9, 11, 13}));
}

TEST(Stream, AFunctionTellsTheEndByOutOfRange) {
  const auto make = [](int64_t size) {
    return FromFunction(Dataset::kUnknownSize,
                        [size](int64_t i, const Context&) -> absl::StatusOr<Example> {
                          if (i >= size) return absl::OutOfRangeError("no more");
                          return Example{at::full({}, i, at::kLong)};
                        });
  };
  for (int64_t size = 0; size < 9; ++size)
    EXPECT_EQ(*make(size)->Available(2, 8, {}), std::clamp<int64_t>(size - 2, 0, 6)) << size;
  EXPECT_EQ(Read(make(5), PlanOf(3), 2, 2).batches,
            (std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4}}));
  const auto empty =
      Pipeline::MakeStream(make(0), PlanOf(3), 0, 1, PipelineOptions())->Next(0).status();
  EXPECT_EQ(ExitCodeOf(empty), ExitCode::kConfiguration);
}

TEST(Stream, CountsTheBatchesThatAreReady) {
  const auto depth = std::make_shared<QueueDepth>();
  const DatasetPtr endless =
      FromFunction(Dataset::kUnknownSize, [](int64_t i, const Context&) -> absl::StatusOr<Example> {
        if (i >= 100) return absl::OutOfRangeError("no more");
        return Example{at::full({}, i, at::kLong)};
      });
  auto pipeline = Pipeline::MakeStream(endless, PlanOf(3), 0, 1, {.prefetch = 3, .depth = depth});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto fills = [&] {
    while (depth->ready < 3 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    return depth->ready == 3;
  };
  EXPECT_EQ(depth->capacity, 3);
  EXPECT_TRUE(fills());
  ASSERT_TRUE(pipeline->Next(0).ok());
  EXPECT_TRUE(fills());
  pipeline.reset();
  EXPECT_EQ(depth->ready, 0);
  EXPECT_EQ(depth->capacity, 0);
}

TEST(Stream, ErrorsOfItsOwnComeOutAtTheirBatch) {
  const DatasetPtr broken = FromStream([](const Context&, int64_t) {
    class Broken final : public Stream {
      absl::StatusOr<Example> Next() override {
        if (++given_ > 4) return DataError("record 4 is damaged");
        return Example{at::full({}, given_, at::kLong)};
      }
      int given_ = 0;
    };
    return std::make_unique<Broken>();
  });
  auto pipeline = Pipeline::MakeStream(broken, PlanOf(2), 0, 1, PipelineOptions());
  ASSERT_TRUE(pipeline->Next(0).ok());
  const auto next = pipeline->Next(0).status();
  EXPECT_EQ(ExitCodeOf(next), ExitCode::kDataDamaged);
  EXPECT_EQ(pipeline->Next(0).status(), next) << "it sticks";
}

}  // namespace
}  // namespace muster::data
