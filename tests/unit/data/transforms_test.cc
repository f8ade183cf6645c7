// The transforms as programs call them. What they compute is compared with torchvision in
// tests/reference/transforms_test.py.
#include "muster/transforms.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <stdexcept>

#include "common/base/hash.h"
#include "common/data/job/job_data.h"
#include "common/data/pipeline.h"

namespace muster::data {
namespace {

using testing::HasSubstr;

// `count` pictures [channels, 8, 9], each pixel with a value of its own, and their numbers.
DatasetPtr Pictures(int64_t count, int64_t channels = 3) {
  const int64_t values = channels * 8 * 9;
  return *FromTensors(
      {at::arange(values, at::kByte).reshape({1, channels, 8, 9}).repeat({count, 1, 1, 1}),
       at::arange(count, at::kLong)});
}

Batch All(const DatasetPtr& dataset, const Context& context = {}) {
  std::vector<int64_t> indices(dataset->size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
  const auto batch = dataset->GetBatch(indices, context);
  EXPECT_TRUE(batch.ok()) << batch.status();
  return batch.ok() ? *batch : Batch(2);
}

TEST(TransformPictures, PicturesInAnyLayoutComeOutTheSame) {
  const auto apply = TransformPictures({RandomCrop{.height = 6, .width = 5, .padding = {1, 1}},
                                        RandomHorizontalFlip{}, NormalizeTo(-1, 1)});
  const at::Tensor planes = All(Pictures(1))[0][0];
  const at::Tensor interleaved = planes.permute({1, 2, 0}).contiguous().permute({2, 0, 1});
  for (int64_t index = 0; index < 20; ++index) {
    const at::Tensor one = apply({planes}, {3, 1}, index)[0];
    EXPECT_EQ(one.sizes(), at::IntArrayRef({3, 6, 5}));
    EXPECT_EQ(one.scalar_type(), at::kFloat);
    EXPECT_TRUE(one.is_contiguous());
    EXPECT_TRUE(at::equal(one, apply({interleaved}, {3, 1}, index)[0]));
  }
  EXPECT_TRUE(at::equal(planes, All(Pictures(1))[0][0])) << "the picture was written to";
}

TEST(TransformPictures, PicturesAreNotWrittenTo) {
  const at::Tensor interleaved =
      All(Pictures(1))[0][0].permute({1, 2, 0}).contiguous().permute({2, 0, 1});
  const at::Tensor before = interleaved.clone();
  const auto apply = TransformPictures({ColorJitter{.brightness = {0.1, 0.2}, .hue = {0.3, 0.4}}});
  EXPECT_FALSE(at::equal(apply({interleaved}, {}, 0)[0], before));
  EXPECT_TRUE(at::equal(interleaved, before));
}

TEST(TransformPictures, NumbersDependOnSeedEpochIndexAndComponent) {
  at::Tensor picture = at::zeros({1, 64, 64}, at::kByte);
  for (int64_t i = 0; i < picture.numel(); ++i)
    picture.mutable_data_ptr<uint8_t>()[i] = static_cast<uint8_t>(SplitMix64(i));
  std::set<std::vector<uint8_t>> seen;
  const auto add = [&](const at::Tensor& part) {
    const auto* data = part.const_data_ptr<uint8_t>();
    seen.insert({data, data + part.numel()});
  };
  const std::vector<Transform> steps = {RandomCrop{.height = 7, .width = 9}};
  const auto first = TransformPictures(steps), second = TransformPictures(steps, 1);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      for (int64_t index = 0; index < 3; ++index) {
        add(first({picture, picture}, {seed, epoch}, index)[0]);
        add(second({picture, picture}, {seed, epoch}, index)[1]);
      }
    }
  }
  EXPECT_GE(seen.size(), 52u) << "of 54 places among 3248";
  EXPECT_TRUE(at::equal(first({picture}, {1, 2}, 3)[0], first({picture}, {1, 2}, 3)[0]));
}

TEST(TransformPictures, OtherComponentsStayAsTheyAre) {
  const DatasetPtr cropped = Map(Pictures(5), TransformPictures({CenterCrop{4, 4}}));
  const Batch batch = All(cropped);
  EXPECT_EQ(batch[0].sizes(), at::IntArrayRef({5, 3, 4, 4}));
  EXPECT_TRUE(at::equal(batch[1], at::arange(5, at::kLong)));
  const Batch none = *cropped->GetBatch({}, {});
  EXPECT_EQ(none[0].sizes(), at::IntArrayRef({0, 3, 4, 4}));
}

TEST(TransformPictures, SingleRowsAndColumns) {
  for (const auto& shape : {std::vector<int64_t>{3, 1, 7}, {3, 7, 1}, {1, 1, 1}, {1, 5, 1}}) {
    const at::Tensor picture = at::full(shape, 77, at::kByte);
    const at::Tensor out =
        TransformPictures({Resize{.height = 3, .width = 4}, RandomHorizontalFlip{1},
                           ColorJitter{}})({picture}, {}, 0)[0];
    EXPECT_TRUE(at::equal(out, at::full({shape[0], 3, 4}, 77, at::kByte)));
  }
}

// Numbers that float32 or int64 cannot hold, which would train to NaN.
TEST(TransformPictures, NumbersBeyondTheirBoundsAreRefused) {
  for (const Transform& step :
       std::vector<Transform>{Normalize{{0.5}, {1e-60}}, Normalize{{1e300}, {1}},
                              NormalizeTo(0, 1e300), Normalize{{0.5}, {1, 1, std::nan("")}},
                              RandomResizedCrop{.height = 2, .width = 2, .ratio = {1e-300, 1}}})
    EXPECT_THROW(TransformPictures({step}), std::invalid_argument);
  EXPECT_NO_THROW(TransformPictures({NormalizeTo(-1e6, 1e6)}));
  EXPECT_NO_THROW(TransformPictures({NormalizeTo(0, 1e-6)}));
  const auto refusal = [](const std::string& steps) {
    const auto json = ParseJson(
        R"({"train": {"format": "image_folder", "path": "p", "transforms": [)" + steps + "]}}",
        "data");
    return std::string(Message(ParseJobData(*json).status()));
  };
  EXPECT_THAT(refusal(R"({"name": "normalize", "range": [0, 1e300]})"),
              HasSubstr("range must be two numbers from -1e6 to 1e6"));
  for (const std::string alpha : {"1e7", "1e-310"})
    EXPECT_THAT(refusal(R"({"name": "normalize", "range": [0, 1]}, {"name": "mixup", "alpha": )" +
                        alpha + "}"),
                HasSubstr("alpha must be above 0, from 1e-6 to 1e6, is"));
}

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TransformPictures, StepsAndPicturesThatMakeNoSense) {
  EXPECT_THAT(Refusal([] {
                TransformPictures({RandomHorizontalFlip{}, RandomCrop{4, 0}});
              }),
              HasSubstr("transform 1 (random_crop): size must be sides of 1 to 32768"));
  EXPECT_THAT(Refusal([] { TransformPictures({Resize{3, 4, 5}}); }), HasSubstr("not all three"));
  EXPECT_THAT(Refusal([] {
                TransformPictures({NormalizeTo(0, 1), Resize{3, 4}});
              }),
              HasSubstr("must be the last"));
  const auto apply = TransformPictures({CenterCrop{4, 4}});
  EXPECT_THAT(Refusal([&] {
                apply({at::zeros({3, 3, 9}, at::kByte)}, {}, 0);
              }),
              HasSubstr("size is 4 x 4, and the picture is 3 x 9 there"));
  for (const at::Tensor& picture :
       {at::zeros({3, 8, 8}), at::zeros({2, 8, 8}, at::kByte), at::zeros({8, 8}, at::kByte),
        at::zeros({3, 0, 8}, at::kByte), at::Tensor()}) {
    EXPECT_THAT(Refusal([&] { apply({picture}, {}, 0); }),
                HasSubstr("transforms are for pictures"));
  }
  // Through a dataset it is the program's error, with the example.
  const auto batch = Map(Pictures(3), TransformPictures({CenterCrop{9, 9}}))->GetBatch({2}, {});
  EXPECT_THAT(std::string(Message(batch.status())), HasSubstr("at example 2"));
}

DatasetPtr Numbers(int64_t count) {
  return *FromTensors({at::arange(count, at::kFloat).reshape({count, 1}),
                       at::arange(count, at::kLong).remainder(3)});
}

TEST(MixUp, EachIsMixedWithTheOneBefore) {
  const Batch batch = All(MixUp(Numbers(7), {.alpha = 0.5, .classes = 3}), {5, 1});
  EXPECT_EQ(batch[1].sizes(), at::IntArrayRef({7, 3}));
  EXPECT_EQ(batch[1].scalar_type(), at::kFloat);
  std::set<float> lambdas;
  for (int64_t i = 0; i < 7; ++i) {
    const int64_t before = (i + 6) % 7;
    const auto lambda = batch[1][i][i % 3].item<float>();
    if (i % 3 != before % 3) {  // else all of it is one class
      lambdas.insert(lambda);
      EXPECT_NEAR(batch[0][i][0].item<float>(),
                  lambda * static_cast<float>(i) + (1 - lambda) * static_cast<float>(before), 1e-5);
    }
    EXPECT_NEAR(batch[1][i].sum().item<float>(), 1, 1e-6);
  }
  EXPECT_EQ(lambdas.size(), 6u);
}

TEST(MixUp, AnySliceIsTheSame) {
  const DatasetPtr mixed = MixUp(Shuffle(Numbers(40)), {.alpha = 1, .classes = 3});
  const Batch whole = All(mixed, {2, 3});
  for (const std::vector<int64_t>& indices :
       {std::vector<int64_t>{0}, {5, 6, 7}, {39, 0, 3}, {8, 8}, {}}) {
    const Batch part = *mixed->GetBatch(indices, {2, 3});
    ASSERT_EQ(part[0].size(0), static_cast<int64_t>(indices.size()));
    for (size_t i = 0; i < indices.size(); ++i) {
      for (int c = 0; c < 2; ++c)
        EXPECT_TRUE(at::equal(part[c][static_cast<int64_t>(i)], whole[c][indices[i]]));
    }
  }
  EXPECT_TRUE(at::equal((*mixed->Get(6, {2, 3}))[0], whole[0][6]));
  EXPECT_FALSE(at::equal(All(mixed, {2, 4})[0], whole[0]));
  EXPECT_EQ((*mixed->GetBatch({}, {}))[1].sizes(), at::IntArrayRef({0, 3}));
}

TEST(MixUp, AnExampleIsReadOnceABatchAndOneMore) {
  int64_t read = 0;
  const DatasetPtr counted = Map(Numbers(20), [&](Example example, const Context&, int64_t) {
    ++read;
    return example;
  });
  ASSERT_TRUE(MixUp(counted, {.alpha = 1, .classes = 3})->GetBatch({4, 5, 6, 7}, {}).ok());
  EXPECT_EQ(read, 5);
}

TEST(MixUp, ADamagedExampleIsLeftOutAndTheNextStaysUnmixed) {
  const DatasetPtr damaged =
      FromFunction(6, [](int64_t index, const Context&) -> absl::StatusOr<Example> {
        if (index == 2) return DataError("'2' is damaged");
        return Example{at::full({1}, static_cast<float>(index)),
                       at::full({}, index % 3, at::kLong)};
      });
  const DatasetPtr mixed = MixUp(damaged, {.alpha = 1, .classes = 3});
  for (const std::vector<int64_t>& indices : {std::vector<int64_t>{2}, {1, 2, 3}})
    EXPECT_EQ(Message(mixed->GetBatch(indices, {}).status()), "'2' is damaged");
  const Batch rest = *mixed->GetBatch({3, 4}, {});
  EXPECT_EQ(rest[0][0].item<float>(), 3);
  EXPECT_EQ(rest[1][0][0].item<float>(), 1);
  EXPECT_TRUE(at::equal(rest[0][1], (*mixed->Get(4, {}))[0]));
  EXPECT_LT(rest[0][1].item<float>(), 4);
}

TEST(MixUp, ALabelThatIsNoClassIsDamageOfItsOwnExample) {
  const DatasetPtr wrong = *FromTensors(
      {at::arange(6, at::kFloat).reshape({6, 1}), at::tensor({0, 1, 7, 0, 1, 2}, at::kLong)});
  const DatasetPtr mixed = MixUp(wrong, {.alpha = 1, .classes = 3});
  const absl::Status refused = mixed->GetBatch({1, 2, 3}, {}).status();
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kDataDamaged);
  EXPECT_EQ(Message(refused), "the label of example 2 is 7, and mixup has 3 classes");
  const auto present = LoadPresentExamples(*mixed, {0, 6}, {});
  ASSERT_TRUE(present.ok()) << present.status();
  EXPECT_EQ(present->damaged, std::vector<std::string>{std::string(Message(refused))});
  ASSERT_EQ(present->count, 5);
  // The one behind it stays unmixed.
  EXPECT_FLOAT_EQ(present->batch[0][2].item<float>(), 3);
  EXPECT_FLOAT_EQ(present->batch[1][2][0].item<float>(), 1);
}

TEST(MixUp, WhatCannotBeMixed) {
  EXPECT_THROW(MixUp(nullptr, {.alpha = 1, .classes = 2}), std::invalid_argument);
  for (const double alpha : {0.0, -1.0, 1e-7, 1e7, std::nan(""), HUGE_VAL})
    EXPECT_THROW(MixUp(Numbers(3), {.alpha = alpha, .classes = 2}), std::invalid_argument) << alpha;
  EXPECT_THROW(MixUp(Numbers(3), {.alpha = 1}), std::invalid_argument);
  const auto message = [](const DatasetPtr& dataset) {
    return std::string(Message(dataset->GetBatch({1, 2}, {}).status()));
  };
  EXPECT_THAT(message(MixUp(Pictures(3), {.alpha = 1, .classes = 3})), HasSubstr("put Normalize"));
  EXPECT_THAT(message(MixUp(Numbers(3), {.alpha = 1, .classes = 2})),
              HasSubstr("the label of example 2 is 2, and mixup has 2 classes"));
  EXPECT_THAT(
      message(MixUp(*FromTensors({at::ones({3, 1}), at::ones({3})}), {.alpha = 1, .classes = 2})),
      HasSubstr("integer labels of shape []"));
  EXPECT_THAT(message(MixUp(Repeat(Numbers(3), -1), {.alpha = 1, .classes = 3})),
              HasSubstr("mixup"));
}

TEST(MixUp, ReplicasGetPartsOfOneBatch) {
  const DatasetPtr mixed = MixUp(Shuffle(Numbers(23)), {.alpha = 0.3, .classes = 3});
  const auto pass = [&](int replicas, int threads) {
    auto pipeline =
        Pipeline::Make(mixed, Sampler(23, 6, false), {2, 0}, 0, replicas, replicas,
                       {.threads = threads, .prefetch = 2 * threads, .seed = 9, .repeat = false});
    std::vector<float> values;
    for (int64_t part = 0;; ++part) {
      const auto batch = pipeline->Next(static_cast<int>(part % replicas));
      if (!batch.ok()) break;
      const auto* data = batch->batch[0].const_data_ptr<float>();
      values.insert(values.end(), data, data + batch->batch[0].numel());
    }
    return values;
  };
  const std::vector<float> alone = pass(1, 0);
  EXPECT_EQ(alone.size(), 23u);
  EXPECT_EQ(pass(2, 3), alone);
  EXPECT_EQ(pass(5, 1), alone);
}

}  // namespace
}  // namespace muster::data
