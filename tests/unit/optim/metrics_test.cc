#include "muster/metrics.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace muster {
namespace {

using ::testing::HasSubstr;

std::vector<double> Sums(const Metric& metric, const at::Tensor& output,
                         const at::Tensor& target = {}) {
  const at::Tensor increment = metric.Increment(output, target).to(at::kDouble);
  EXPECT_EQ(increment.dim(), 1);
  EXPECT_EQ(increment.numel(), metric.width());
  return {increment.data_ptr<double>(), increment.data_ptr<double>() + increment.numel()};
}

double Value(const Metric& metric, const at::Tensor& output, const at::Tensor& target = {}) {
  return metric.Result(Sums(metric, output, target));
}

at::Tensor Labels(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

TEST(Metrics, MeanAndSumOverAllElements) {
  const at::Tensor values = at::tensor({1.0, 2.0, 6.0, 7.0}).reshape({2, 2});
  EXPECT_DOUBLE_EQ(Value(*MakeMean(), values), 4);
  EXPECT_DOUBLE_EQ(Value(*MakeSum(), values), 16);
  EXPECT_DOUBLE_EQ(Value(*MakeMean(), Labels({1, 0, 0, 1}).to(at::kBool)), 0.5);
  EXPECT_DOUBLE_EQ(Value(*MakeMean(), at::ones({}).mul(3)), 3);
}

TEST(Metrics, IncrementsOfSlicesAddUp) {
  const at::Tensor values = at::tensor({1.0, 2.0, 6.0, 7.0, 8.0});
  std::vector<double> sums(2, 0);
  for (const auto& [begin, end] : {std::pair{0, 3}, {3, 3}, {3, 5}}) {
    const std::vector<double> more = Sums(*MakeMean(), values.slice(0, begin, end));
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
  }
  EXPECT_DOUBLE_EQ(MakeMean()->Result(sums), 4.8);
}

TEST(Metrics, AccuracyTakesTheFirstOfEqualScores) {
  const at::Tensor scores =
      at::tensor({0.1, 0.9, 0.0, 0.5, 0.5, 0.1, 0.2, 0.3, 0.3}).reshape({3, 3});
  EXPECT_DOUBLE_EQ(Value(*MakeAccuracy(), scores, Labels({1, 0, 1})), 1);
  EXPECT_DOUBLE_EQ(Value(*MakeAccuracy(), scores, Labels({1, 1, 2})), 1.0 / 3);
}

TEST(Metrics, TopKCountsTiesAtTheEdgeAsWithin) {
  const at::Tensor scores = at::tensor({4.0, 3.0, 3.0, 3.0, 1.0}).reshape({1, 5});
  EXPECT_DOUBLE_EQ(Value(*MakeTopKAccuracy(1), scores, Labels({0})), 1);
  EXPECT_DOUBLE_EQ(Value(*MakeTopKAccuracy(1), scores, Labels({1})), 0);
  for (const int64_t tied : {1, 2, 3}) {
    EXPECT_DOUBLE_EQ(Value(*MakeTopKAccuracy(2), scores, Labels({tied})), 1);
  }
  EXPECT_DOUBLE_EQ(Value(*MakeTopKAccuracy(4), scores, Labels({4})), 0);
  EXPECT_DOUBLE_EQ(Value(*MakeTopKAccuracy(9), scores, Labels({4})), 1);
}

TEST(Metrics, TopKOfNaNsAndOfTargetsThatAreNoClassIsWrong) {
  const at::Tensor scores = at::tensor({4.0, std::numeric_limits<double>::quiet_NaN()});
  EXPECT_DOUBLE_EQ(Value(*MakeTopKAccuracy(2), scores.reshape({1, 2}), Labels({0})), 0);
  EXPECT_DOUBLE_EQ(Value(*MakeTopKAccuracy(2), at::ones({2, 2}), Labels({-1, 2})), 0);
}

TEST(Metrics, OfProbabilitiesTheLargestIsTheClass) {
  const at::Tensor scores = at::tensor({0.1, 0.9, 0.0, 0.5, 0.2, 0.3}).reshape({2, 3});
  const at::Tensor mixed = at::tensor({0.3, 0.7, 0.0, 0.4, 0.0, 0.6}).reshape({2, 3});
  EXPECT_DOUBLE_EQ(Value(*MakeAccuracy(), scores, mixed), 0.5);
  EXPECT_DOUBLE_EQ(Value(*MakeTopKAccuracy(2), scores, mixed), 1);
  EXPECT_EQ(Sums(*MakeAccuracy(), at::empty({0, 3}), at::empty({0, 3})), std::vector<double>(2, 0));
}

TEST(Metrics, BinaryAccuracy) {
  const at::Tensor scores = at::tensor({0.2, 0.5, 0.6, 0.9});
  EXPECT_DOUBLE_EQ(Value(*MakeBinaryAccuracy(0.5), scores, Labels({0, 0, 1, 0})), 0.75);
  EXPECT_DOUBLE_EQ(
      Value(*MakeBinaryAccuracy(0.5), scores.reshape({4, 1}), at::tensor({0.0, 1.0, 1.0, 1.0})),
      0.75);
}

TEST(Metrics, SquaredAndAbsoluteErrors) {
  const at::Tensor output = at::tensor({1.0, 2.0, 3.0, 4.0}).reshape({2, 2});
  const at::Tensor target = at::tensor({1.0, 4.0, 3.0, 0.0}).reshape({2, 2});
  EXPECT_DOUBLE_EQ(Value(*MakeMeanSquaredError(), output, target), 5);
  EXPECT_DOUBLE_EQ(Value(*MakeMeanAbsoluteError(), output, target), 1.5);
  const at::Tensor bytes = at::tensor({250, 3}, at::kByte);
  EXPECT_DOUBLE_EQ(Value(*MakeMeanAbsoluteError(), bytes, at::tensor({3, 250}, at::kByte)), 247);
}

TEST(Metrics, EmptyBatchesAddZeros) {
  const at::Tensor scores = at::empty({0, 10}), labels = Labels({}), column = at::empty({0});
  EXPECT_EQ(Sums(*MakeMean(), column), std::vector<double>(2, 0));
  EXPECT_EQ(Sums(*MakeSum(), column), std::vector<double>(1, 0));
  EXPECT_EQ(Sums(*MakeAccuracy(), scores, labels), std::vector<double>(2, 0));
  EXPECT_EQ(Sums(*MakeTopKAccuracy(3), scores, labels), std::vector<double>(2, 0));
  EXPECT_EQ(Sums(*MakeBinaryAccuracy(0), column, labels), std::vector<double>(2, 0));
  EXPECT_EQ(Sums(*MakeMeanSquaredError(), scores, scores), std::vector<double>(2, 0));
  EXPECT_EQ(Sums(*MakeMeanAbsoluteError(), scores, scores), std::vector<double>(2, 0));
  EXPECT_EQ(MakeAccuracy()->Result({0, 0}), 0);
}

TEST(Metrics, NoGraphIsKept) {
  const at::Tensor output = at::ones({3}).requires_grad_(true);
  EXPECT_FALSE(MakeMean()->Increment(output.mul(2), {}).requires_grad());
}

std::string MetricRefusal(const Metric& metric, const at::Tensor& output,
                          const at::Tensor& target) {
  try {
    metric.Increment(output, target);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "accepted";
}

TEST(Metrics, TargetsThatAreNoProbabilitiesAreRefused) {
  const auto accuracy = MakeAccuracy(), top = MakeTopKAccuracy(2);
  // One score: all would be class 0, and right.
  const at::Tensor column = at::tensor({0.1, 0.9, 0.4, 0.7}).reshape({4, 1});
  EXPECT_THAT(MetricRefusal(*accuracy, column, at::ones({4, 1})),
              HasSubstr("the target must be class numbers [batch] like the output's [4, 1]"));
  const at::Tensor scores = at::rand({2, 3});
  const auto rows = [](double a, double b, double c) {
    return at::tensor({0.2, 0.5, 0.3, a, b, c}).reshape({2, 3});
  };
  for (const auto& metric : {accuracy.get(), top.get()}) {
    EXPECT_THAT(MetricRefusal(*metric, scores, rows(-5.5, 12, 0)),
                HasSubstr("example 1 of the batch"));
    EXPECT_THAT(MetricRefusal(*metric, scores, rows(-0.5, 1.5, 0)), HasSubstr("the smallest -0.5"));
    EXPECT_THAT(MetricRefusal(*metric, scores, rows(0.5, 0.6, 0)), HasSubstr("the sum 1.1"));
    EXPECT_NE(MetricRefusal(*metric, scores, rows(std::nan(""), 1, 0)), "accepted");
    EXPECT_EQ(MetricRefusal(*metric, scores, rows(0.4995, 0.5, 0)), "accepted");
    EXPECT_EQ(MetricRefusal(*metric, scores, rows(0.1, 0.3, 0.6).to(at::kBFloat16)), "accepted");
  }
}

TEST(Metrics, ShapesThatCannotBeRight) {
  const at::Tensor scores = at::ones({4, 3}), labels = Labels({0, 1, 2, 0});
  EXPECT_THAT(MetricRefusal(*MakeMean(), scores, labels), HasSubstr("no target"));
  EXPECT_THAT(MetricRefusal(*MakeSum(), scores, labels), HasSubstr("no target"));
  for (const auto& metric : {MakeAccuracy(), MakeTopKAccuracy(2)}) {
    EXPECT_THAT(MetricRefusal(*metric, at::ones({4}), labels),
                HasSubstr("scores [batch, classes]"));
    EXPECT_THAT(MetricRefusal(*metric, at::ones({4, 0}), labels),
                HasSubstr("scores [batch, classes]"));
    EXPECT_THAT(MetricRefusal(*metric, scores, {}), HasSubstr("missing"));
    EXPECT_THAT(MetricRefusal(*metric, scores, Labels({1})), HasSubstr("class numbers [batch]"));
    EXPECT_THAT(MetricRefusal(*metric, scores, Labels({0, 1, 2, 0}).unsqueeze(1)),
                HasSubstr("class numbers [batch]"));
    EXPECT_THAT(MetricRefusal(*metric, scores, labels.eq(1)), HasSubstr("integer class numbers"));
    EXPECT_THAT(MetricRefusal(*metric, scores, at::ones({4})),
                HasSubstr("must have the output's shape [4, 3], has [4]; class numbers must be"));
  }
  EXPECT_THAT(MetricRefusal(*MakeBinaryAccuracy(0.5), scores, labels),
              HasSubstr("[batch, 1], is [4, 3]"));
  EXPECT_THAT(MetricRefusal(*MakeBinaryAccuracy(0.5), at::ones({4}), Labels({1})),
              HasSubstr("4 outputs and 1 targets"));
  for (const auto& metric : {MakeMeanSquaredError(), MakeMeanAbsoluteError()}) {
    EXPECT_THAT(MetricRefusal(*metric, at::ones({4}), at::ones({4, 1})), HasSubstr("one shape"));
    EXPECT_THAT(MetricRefusal(*metric, at::ones({4}), {}), HasSubstr("missing"));
  }
  EXPECT_THROW(MakeTopKAccuracy(0), c10::Error);
}

// ---- Decisions; their values are compared with scikit-learn's in tests/reference.

TEST(Metrics, WhatWeighsNothingIsHiddenWhateverItIs) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor weights = at::tensor({1.0, 0.0, 2.0}).to(at::kFloat);
  const at::Tensor scores = at::tensor({0.9, nan, 0.2}).to(at::kFloat);
  const auto sums = [&](const Metric& metric, const at::Tensor& output, const at::Tensor& target) {
    const at::Tensor increment =
        metric.WeightedIncrement(output, target, weights).to(at::kDouble).contiguous();
    return std::vector<double>(increment.data_ptr<double>(),
                               increment.data_ptr<double>() + increment.numel());
  };
  EXPECT_EQ(sums(*MakePrecision(), scores, Labels({1, 1, 1})), (std::vector<double>{1, 1}));
  EXPECT_EQ(sums(*MakeRecall(), scores, Labels({1, 1, 1})), (std::vector<double>{1, 3}));
  EXPECT_EQ(sums(*MakeAuc({.num_thresholds = 3}), scores, Labels({1, 0, 0})),
            (std::vector<double>{0, 1, 0, 2, 0, 0}));
  const at::Tensor logits = at::tensor({2.0, 0.0, nan, nan, 0.0, 2.0}).reshape({3, 2});
  EXPECT_EQ(sums(*MakeConfusionMatrix(2), logits, Labels({0, 1, 0})),
            (std::vector<double>{1, 2, 0, 0}));
  // Class numbers that are none, too.
  EXPECT_EQ(sums(*MakeConfusionMatrix(2), logits, Labels({0, -100, 5})),
            (std::vector<double>{1, 0, 0, 0}));
  const std::vector<double> nats = sums(*MakePerplexity(), logits, Labels({0, -100, 1}));
  EXPECT_NEAR(MakePerplexity()->Result(nats), 1 + std::exp(-2), 1e-6);
}

TEST(Metrics, PerplexityOfAClassThatIsNoneIsNone) {
  EXPECT_TRUE(std::isnan(Value(*MakePerplexity(), at::ones({1, 2}), Labels({2}))));
}

TEST(Metrics, CountsAreExactBeyondFloat32) {
  const double many = 1 << 25;
  EXPECT_DOUBLE_EQ(MakePrecision()->Result({many + 1, many + 3}), (many + 1) / (many + 3));
  EXPECT_DOUBLE_EQ(MakeConfusionMatrix(2)->Result({many, 1, 1, many + 1}),
                   (2 * many + 1) / (2 * many + 3));
  EXPECT_DOUBLE_EQ(MakeFScore()->Result({many + 1, many + 2, many + 4}),
                   2 * (many + 1) / (2 * many + 6));
}

TEST(Metrics, AConfusionMatrixIsAPicture) {
  EXPECT_FALSE(MakeAccuracy()->Image({1, 2}).has_value());
  for (const int classes : {2, 20, 21, kMostConfusionClasses}) {
    const auto metric = MakeConfusionMatrix(classes);
    std::vector<double> sums(metric->width());
    for (int c = 0; c < classes; ++c) sums[c * classes + c] = 12345.6 * c;
    const auto image = metric->Image(sums);
    ASSERT_TRUE(image.has_value());
    EXPECT_EQ(image->height, image->width);
    EXPECT_LE(image->height, 1024);
    ASSERT_EQ(image->pixels.size(), static_cast<size_t>(image->height) * image->width * 3);
    // The corner of the last cell is dark, of the cell before it in its row white; and so is the
    // first row, of which there are no examples.
    const int line = classes > 128 ? 0 : 1, cell = (image->width - line) / classes - line;
    const auto red = [&](int row, int column) {
      return image
          ->pixels[((line + row * (cell + line)) * image->width + line + column * (cell + line)) *
                   3];
    };
    EXPECT_EQ(red(classes - 1, classes - 1), 8) << classes;
    EXPECT_EQ(red(classes - 1, classes - 2), 255) << classes;
    EXPECT_EQ(red(0, 0), 255) << classes;
  }
}

TEST(Metrics, DecisionsThatCannotBeTaken) {
  const at::Tensor scores = at::ones({4, 3}), labels = Labels({0, 1, 2, 0});
  for (const auto& metric : {MakePrecision(), MakeRecall(), MakeAuc(), MakeFScore()}) {
    EXPECT_THAT(MetricRefusal(*metric, scores, {}), HasSubstr("missing"));
    EXPECT_THAT(MetricRefusal(*metric, scores, Labels({1})), HasSubstr("the shape of the output"));
    EXPECT_THAT(MetricRefusal(*metric, scores, at::ones({4})),
                HasSubstr("the shape of the output"));
  }
  EXPECT_THAT(MetricRefusal(*MakePrecision({.class_id = 3}), scores, labels),
              HasSubstr("counts class 3"));
  EXPECT_THAT(MetricRefusal(*MakeFScore({.class_id = 3}), scores, labels),
              HasSubstr("counts class 3"));
  EXPECT_THAT(MetricRefusal(*MakeFScore(), at::ones({4}), labels),
              HasSubstr("give the metric a threshold"));
  EXPECT_THAT(
      MetricRefusal(*MakeFScore({.average = ClassAverage::kMacro, .classes = 4}), scores, labels),
      HasSubstr("of 4 classes"));
  EXPECT_THAT(MetricRefusal(*MakeConfusionMatrix(4), scores, labels),
              HasSubstr("scores [batch, 4]"));
  EXPECT_THAT(MetricRefusal(*MakeConfusionMatrix(3), scores, at::ones({4})),
              HasSubstr("class numbers"));
  EXPECT_THAT(MetricRefusal(*MakePerplexity(), scores, Labels({1})),
              HasSubstr("class numbers [...]"));
  EXPECT_THAT(MetricRefusal(*MakeCosineSimilarity(), at::ones({4}), at::ones({4})),
              HasSubstr("vectors"));
  EXPECT_THROW(MakePrecision({.top_k = -1}), c10::Error);
  EXPECT_THROW(MakeFScore({.beta = 0}), c10::Error);
  EXPECT_THROW(MakeAuc({.num_thresholds = 1}), c10::Error);
  EXPECT_THROW(MakeConfusionMatrix(1), c10::Error);
  EXPECT_THROW(MakeConfusionMatrix(kMostConfusionClasses + 1), c10::Error);
}

}  // namespace
}  // namespace muster
