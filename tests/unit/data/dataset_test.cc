#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "muster/data.h"

namespace muster::data {
namespace {

using testing::HasSubstr;

std::vector<int64_t> Values(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.to(at::kLong).contiguous();
  const auto* data = whole.const_data_ptr<int64_t>();
  return {data, data + whole.numel()};
}

DatasetPtr Range(int64_t size) {
  auto dataset =
      FromTensors({at::arange(size), at::arange(2 * size, at::kFloat).reshape({size, 2})});
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return *dataset;
}

// The first component of examples 0, 1, ... by Get.
std::vector<int64_t> All(const DatasetPtr& dataset, Context context = {}) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < dataset->size(); ++i) {
    auto example = dataset->Get(i, context);
    EXPECT_TRUE(example.ok()) << example.status();
    values.push_back(example->at(0).item<int64_t>());
  }
  return values;
}

std::vector<int64_t> BatchOf(const DatasetPtr& dataset, const std::vector<int64_t>& indices,
                             Context context = {}) {
  auto batch = dataset->GetBatch(indices, context);
  EXPECT_TRUE(batch.ok()) << batch.status();
  return Values(batch->at(0));
}

std::string ErrorOf(const absl::Status& status) { return std::string(Message(status)); }

TEST(DatasetTest, FromTensors) {
  const DatasetPtr dataset = Range(6);
  EXPECT_EQ(dataset->size(), 6);
  auto example = dataset->Get(4, {});
  ASSERT_TRUE(example.ok());
  EXPECT_EQ(Values(example->at(1)), (std::vector<int64_t>{8, 9}));
  auto batch = dataset->GetBatch({1, 2, 3, 0, 5, 5}, {});
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(Values(batch->at(0)), (std::vector<int64_t>{1, 2, 3, 0, 5, 5}));
  EXPECT_EQ(Values(batch->at(1)), (std::vector<int64_t>{2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 10, 11}));
  auto none = dataset->GetBatch({}, {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->at(1).sizes(), (at::IntArrayRef{0, 2}));
  EXPECT_EQ(none->at(1).scalar_type(), at::kFloat);
  EXPECT_EQ(ExitCodeOf(dataset->Get(6, {}).status()), ExitCode::kProgramFailed);
  EXPECT_EQ(ExitCodeOf(dataset->GetBatch({0, -1}, {}).status()), ExitCode::kProgramFailed);
}

TEST(DatasetTest, FromTensorsOfAnyLayoutOrSize) {
  auto dataset = FromTensors({at::arange(6).reshape({2, 3}).t(), at::zeros({3, 0})});
  ASSERT_TRUE(dataset.ok());
  auto batch = (*dataset)->GetBatch({2, 0}, {});
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(Values(batch->at(0)), (std::vector<int64_t>{2, 5, 0, 3}));
  EXPECT_EQ(batch->at(1).sizes(), (at::IntArrayRef{2, 0}));
  auto empty = FromTensors({at::zeros({0, 4})});
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ((*empty)->size(), 0);
  EXPECT_EQ((*empty)->GetBatch({}, {})->at(0).sizes(), (at::IntArrayRef{0, 4}));
}

TEST(DatasetTest, FromTensorsRefusesWhatDoesNotFit) {
  EXPECT_THAT(ErrorOf(FromTensors({at::zeros({3}), at::zeros({4})}).status()),
              HasSubstr("component 0 has 3, component 1 has 4"));
  EXPECT_FALSE(FromTensors({}).ok());
  EXPECT_FALSE(FromTensors({at::zeros({})}).ok());
  EXPECT_FALSE(FromTensors({at::Tensor()}).ok());
}

TEST(DatasetTest, WritingToABatchDoesNotChangeTheDataset) {
  for (const DatasetPtr& dataset : {Range(4), Cache(Range(4))}) {
    for (int pass = 0; pass < 2; ++pass) {
      auto example = dataset->Get(1, {});
      EXPECT_EQ(example->at(0).item<int64_t>(), 1);
      example->at(0).fill_(77);
      auto batch = dataset->GetBatch({0, 1, 2, 3}, {});
      EXPECT_EQ(Values(batch->at(0)), (std::vector<int64_t>{0, 1, 2, 3}));
      batch->at(0).fill_(77);
    }
  }
}

TEST(DatasetTest, StacksExamplesAndSaysWhichDoNotFit) {
  const auto ragged = [](int64_t index, const Context&) -> Example {
    if (index == 3) return {at::zeros({2}), at::zeros({})};
    if (index == 4) return {at::zeros({}), at::zeros({}, at::kLong)};
    if (index == 5) return {at::zeros({})};
    return {at::full({}, index, at::kFloat), at::zeros({})};
  };
  const DatasetPtr dataset = FromFunction(6, ragged);
  EXPECT_EQ(BatchOf(dataset, {2, 0, 1}), (std::vector<int64_t>{2, 0, 1}));
  EXPECT_THAT(ErrorOf(dataset->GetBatch({0, 3}, {}).status()),
              HasSubstr("Component 0 of example 0 is [] Float and of example 3 is [2] Float"));
  EXPECT_THAT(ErrorOf(dataset->GetBatch({0, 4}, {}).status()), HasSubstr("[] Long"));
  EXPECT_THAT(ErrorOf(dataset->GetBatch({1, 5}, {}).status()), HasSubstr("has 1"));
  auto none = dataset->GetBatch({}, {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->at(0).sizes(), at::IntArrayRef{0});
  EXPECT_FALSE(FromFunction(0, ragged)->GetBatch({}, {}).ok());
}

TEST(DatasetTest, TakeSkipRepeat) {
  EXPECT_EQ(All(Take(Range(5), 2)), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(Take(Range(5), 9)->size(), 5);
  EXPECT_EQ(Take(Range(5), -1)->size(), 5);
  EXPECT_EQ(All(Skip(Range(5), 3)), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(Skip(Range(5), 9)->size(), 0);
  EXPECT_EQ(Skip(Range(5), -1)->size(), 0);
  EXPECT_EQ(BatchOf(Skip(Take(Range(9), 7), 2), {4, 0}), (std::vector<int64_t>{6, 2}));
  const DatasetPtr twice = Repeat(Range(3), 2);
  EXPECT_EQ(All(twice), (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(BatchOf(twice, {5, 0, 4, 1, 3}), (std::vector<int64_t>{2, 0, 1, 1, 0}));
  EXPECT_EQ(BatchOf(twice, {1, 2, 3, 4}), (std::vector<int64_t>{1, 2, 0, 1}));
  EXPECT_EQ(twice->GetBatch({}, {})->at(0).sizes(), at::IntArrayRef{0});
  EXPECT_EQ(Repeat(Range(3), 0)->size(), 0);
  EXPECT_EQ(Repeat(Range(3), INT64_MAX)->size(), INT64_MAX);
}

TEST(DatasetTest, ShuffleIsAPermutationPerEpoch) {
  const DatasetPtr shuffled = Shuffle(Range(100));
  const auto first = All(shuffled, {42, 0});
  EXPECT_EQ(first, All(shuffled, {42, 0}));
  EXPECT_THAT(first, testing::UnorderedElementsAreArray(All(Range(100))));
  EXPECT_NE(first, All(Range(100)));
  EXPECT_NE(first, All(shuffled, {42, 1}));
  EXPECT_NE(first, All(shuffled, {43, 0}));
  EXPECT_NE(first, All(Shuffle(Range(100), 1), {42, 0}));
  EXPECT_EQ(BatchOf(shuffled, {3, 50, 99}, {42, 0}),
            (std::vector<int64_t>{first[3], first[50], first[99]}));
  const DatasetPtr fixed = Shuffle(Range(100), 0, /*reshuffle_each_iteration=*/false);
  EXPECT_EQ(All(fixed, {42, 0}), All(fixed, {42, 1}));
  EXPECT_NE(All(fixed, {42, 0}), All(fixed, {43, 0}));
}

TEST(DatasetTest, RepeatReshuffles) {
  const DatasetPtr dataset = Repeat(Shuffle(Range(50)), 2);
  const auto both = All(dataset, {42, 1});
  const std::vector<int64_t> first(both.begin(), both.begin() + 50),
      second(both.begin() + 50, both.end());
  EXPECT_EQ(first, All(Shuffle(Range(50)), {42, 2}));
  EXPECT_EQ(second, All(Shuffle(Range(50)), {42, 3}));
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < 100; ++i) indices.push_back((i * 37) % 100);
  std::vector<int64_t> expected;
  for (int64_t i : indices) expected.push_back(both[i]);
  EXPECT_EQ(BatchOf(dataset, indices, {42, 1}), expected);
}

TEST(DatasetTest, ZipIsAsLongAsTheShortest) {
  auto zip = Zip({Range(5), Skip(Range(9), 6)});
  ASSERT_TRUE(zip.ok());
  EXPECT_EQ((*zip)->size(), 3);
  auto example = (*zip)->Get(1, {});
  ASSERT_EQ(example->size(), 4u);
  EXPECT_EQ(example->at(2).item<int64_t>(), 7);
  auto batch = (*zip)->GetBatch({2, 0}, {});
  EXPECT_EQ(Values(batch->at(2)), (std::vector<int64_t>{8, 6}));
  EXPECT_FALSE(Zip({}).ok());
  EXPECT_FALSE(Zip({Range(3), nullptr}).ok());
}

TEST(DatasetTest, MapSeesContextAndIndex) {
  const DatasetPtr mapped =
      Map(Skip(Range(5), 1), [](Example example, const Context& context, int64_t index) -> Example {
        return {example[0] * 100 + index * 10 + context.epoch};
      });
  EXPECT_EQ(All(mapped, {0, 7}), (std::vector<int64_t>{107, 217, 327, 437}));
  EXPECT_EQ(BatchOf(mapped, {3, 0}, {0, 7}), (std::vector<int64_t>{437, 107}));
  EXPECT_EQ(mapped->GetBatch({}, {})->at(0).sizes(), at::IntArrayRef{0});
  const DatasetPtr bad = Map(Range(5), [](Example, const Context&, int64_t index) -> Example {
    throw std::runtime_error("bad example " + std::to_string(index));
  });
  const absl::Status status = bad->GetBatch({2}, {}).status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kProgramFailed);
  EXPECT_THAT(ErrorOf(status), HasSubstr("The map function, at example 2, failed: bad example 2"));
  const DatasetPtr worse =
      Map(Range(5), [](Example, const Context&, int64_t) -> Example { throw 5; });
  EXPECT_EQ(ExitCodeOf(worse->Get(2, {}).status()), ExitCode::kProgramFailed);
  // LibTorch's own exceptions: the sentence, not the backtrace.
  const DatasetPtr torch =
      Map(Range(5), [](Example e, const Context&, int64_t) -> Example { return {e[1].view({3})}; });
  EXPECT_THAT(ErrorOf(torch->Get(2, {}).status()),
              testing::AllOf(HasSubstr("shape '[3]' is invalid"), Not(HasSubstr("frame #"))));
}

TEST(DatasetTest, MapBatchWorksOnWholeBatches) {
  std::atomic<int> calls{0};
  const DatasetPtr mapped =
      MapBatch(Range(5), [&](Batch batch, const Context&, const std::vector<int64_t>&) -> Batch {
        ++calls;
        return {batch[0] * 2, batch[1].to(at::kFloat).div_(2)};
      });
  EXPECT_EQ(BatchOf(mapped, {4, 0, 1}), (std::vector<int64_t>{8, 0, 2}));
  EXPECT_EQ(calls, 1);
  auto example = mapped->Get(3, {});
  EXPECT_EQ(example->at(0).item<int64_t>(), 6);
  EXPECT_EQ(example->at(1).sizes(), at::IntArrayRef{2});
  EXPECT_EQ(mapped->GetBatch({}, {})->at(1).sizes(), (at::IntArrayRef{0, 2}));
  const DatasetPtr bad = MapBatch(
      Range(5), [](Batch, const Context&, const auto&) -> Batch { return {at::zeros({7})}; });
  EXPECT_THAT(ErrorOf(bad->GetBatch({1, 2}, {}).status()),
              HasSubstr("gave [7] Float as component 0 of a batch of 2"));
}

TEST(DatasetTest, BatchExamplesKeepsOrDropsTheRemainder) {
  const DatasetPtr kept = BatchExamples(Range(7), 3), dropped = BatchExamples(Range(7), 3, true);
  EXPECT_EQ(kept->size(), 3);
  EXPECT_EQ(dropped->size(), 2);
  EXPECT_EQ(Values(kept->Get(2, {})->at(0)), (std::vector<int64_t>{6}));
  EXPECT_EQ(Values(kept->Get(1, {})->at(0)), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(dropped->GetBatch({1, 0}, {})->at(0).sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_FALSE(kept->GetBatch({0, 2}, {}).ok());
  EXPECT_THROW(BatchExamples(Range(7), 0), std::invalid_argument);
}

TEST(DatasetTest, CacheLoadsEachExampleOnce) {
  std::atomic<int> loads{0};
  const DatasetPtr cached = Cache(FromFunction(100, [&](int64_t i, const Context&) -> Example {
    ++loads;
    return {at::full({}, i, at::kLong), at::full({3}, i)};
  }));
  EXPECT_EQ(BatchOf(cached, {5, 7, 5}), (std::vector<int64_t>{5, 7, 5}));
  EXPECT_EQ(BatchOf(cached, {7, 9, 5}), (std::vector<int64_t>{7, 9, 5}));
  EXPECT_EQ(loads, 4);  // 5 twice within one batch
  const auto everything = All(cached);
  EXPECT_EQ(loads, 101);
  EXPECT_EQ(All(Shuffle(cached)).size(), 100u);
  EXPECT_EQ(everything, All(cached));
  EXPECT_EQ(loads, 101);
  EXPECT_EQ(cached->GetBatch({}, {})->at(1).sizes(), (at::IntArrayRef{0, 3}));
}

// Like pictures of a folder: each is an example, and one of another size is no row of a batch.
class OneOfAnotherShape final : public Dataset {
 public:
  int64_t size() const override { return 4; }
  absl::StatusOr<Example> Get(int64_t index, const Context&) const override {
    return Example{at::full({index == 2 ? 5 : 3}, index, at::kLong)};
  }
  absl::StatusOr<Batch> GetBatch(const std::vector<int64_t>& indices,
                                 const Context& context) const override {
    for (const int64_t index : indices) {
      if (index == 2) return DataError("'2.png' is of another size");
    }
    return Dataset::GetBatch(indices, context);
  }
};

TEST(DatasetTest, CacheGivesWhatItsInputGivesAlsoOfOtherShapes) {
  for (const bool get_first : {false, true}) {
    const DatasetPtr cached = Cache(std::make_shared<OneOfAnotherShape>());
    if (get_first) {
      for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(cached->Get(i, {}).ok());
    }
    for (const std::vector<int64_t>& batch : {std::vector<int64_t>{1, 2}, {2}, {0, 1, 2, 3}})
      EXPECT_EQ(ExitCodeOf(cached->GetBatch(batch, {}).status()), ExitCode::kDataDamaged);
    EXPECT_EQ(cached->GetBatch({0, 1, 3}, {})->at(0).sizes(), (at::IntArrayRef{3, 3}));
    EXPECT_EQ(cached->Get(2, {})->at(0).sizes(), (at::IntArrayRef{5}));
    EXPECT_EQ(cached->Get(1, {})->at(0).sizes(), (at::IntArrayRef{3}));
  }
}

TEST(DatasetTest, CacheIsFilledByManyThreads) {
  const DatasetPtr cached = Cache(Range(500));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<int64_t> indices;
      for (int64_t i = 0; i < 500; ++i) indices.push_back((i * 7 + t * 13) % 500);
      for (int64_t i = 0; i < 500; i += 20) {
        const std::vector<int64_t> part(indices.begin() + i, indices.begin() + i + 20);
        right += BatchOf(cached, part) == part;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 100);
}

TEST(DatasetTest, UnknownSizesGoThroughAndAreRefused) {
  const DatasetPtr unknown =
      FromFunction(Dataset::kUnknownSize,
                   [](int64_t i, const Context&) -> Example { return {at::full({}, i)}; });
  for (const DatasetPtr& dataset :
       {unknown, Repeat(Range(3), -1), Take(unknown, 5), Skip(unknown, 5), Shuffle(unknown),
        Repeat(unknown, 2), *Zip({Range(3), unknown}), BatchExamples(unknown, 2), Cache(unknown)}) {
    EXPECT_EQ(dataset->size(), Dataset::kUnknownSize);
    const absl::Status status = CheckSized(*dataset, "train");
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration);
    EXPECT_THAT(ErrorOf(status), HasSubstr("The dataset 'train' does not know its size"));
  }
  EXPECT_TRUE(CheckSized(*Range(3), "train").ok());
  EXPECT_EQ(BatchOf(Repeat(Range(3), -1), {7, 2}), (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(Shuffle(unknown)->GetBatch({0}, {}).ok());
  EXPECT_FALSE(Cache(unknown)->Get(0, {}).ok());
  EXPECT_FALSE(Repeat(unknown, 2)->Get(0, {}).ok());
  EXPECT_THROW(Shuffle(nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace muster::data
