#include "muster/losses.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

namespace muster {
namespace {

using ::testing::HasSubstr;

at::Tensor Double(std::vector<double> values) { return at::tensor(values, at::kDouble); }

void ExpectClose(const at::Tensor& got, const at::Tensor& want) {
  ASSERT_EQ(got.sizes(), want.sizes());
  EXPECT_TRUE(at::allclose(got.to(at::kDouble), want.to(at::kDouble), 1e-6, 1e-7))
      << got << "\nexpected\n"
      << want;
}

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

// log(sum exp) - score, by hand.
double Entropy(const std::vector<double>& scores, int label) {
  double sum = 0;
  for (const double score : scores) sum += std::exp(score);
  return std::log(sum) - scores[label];
}

TEST(CrossEntropy, OneLabelForEachExample) {
  const at::Tensor logits = Double({1, 2, 3, -1, 0, 0.5}).reshape({2, 3});
  ExpectClose(cross_entropy(logits, at::tensor({2, 0})),
              Double({Entropy({1, 2, 3}, 2), Entropy({-1, 0, 0.5}, 0)}));
  // Classes in dimension 1 are the last ones here.
  ExpectClose(cross_entropy(logits, at::tensor({2, 0}), {.class_dim = -1}),
              cross_entropy(logits, at::tensor({2, 0})));
}

TEST(CrossEntropy, TokensAreAveragedWithoutThoseThatAreIgnored) {
  at::manual_seed(1);
  const at::Tensor logits = at::randn({3, 4, 5}, at::kDouble);  // [batch, tokens, classes]
  const at::Tensor labels = at::tensor({0, 1, 2, 3, 4, -7, -7, 0, -7, -7, -7, -7}).reshape({3, 4});
  const CrossEntropyOptions each{
      .class_dim = -1, .ignore_index = -7, .shape = LossShape::kPerElement};
  const at::Tensor elements = cross_entropy(logits, labels, each);
  ASSERT_EQ(elements.sizes(), labels.sizes());
  const auto entropy = [&](int b, int t) {
    const at::Tensor row = logits[b][t].contiguous();
    return Entropy({row.data_ptr<double>(), row.data_ptr<double>() + 5}, labels[b][t].item<int>());
  };
  EXPECT_NEAR(elements[0][1].item<double>(), entropy(0, 1), 1e-9);
  EXPECT_EQ(elements[1][1].item<double>(), 0);
  ExpectClose(cross_entropy(logits, labels, {.class_dim = -1, .ignore_index = -7}),
              Double({(entropy(0, 0) + entropy(0, 1) + entropy(0, 2) + entropy(0, 3)) / 4,
                      (entropy(1, 0) + entropy(1, 3)) / 2, 0}));
  // torch's order of dimensions: [batch, classes, tokens].
  ExpectClose(cross_entropy(logits.transpose(1, 2), labels, {.ignore_index = -7}),
              cross_entropy(logits, labels, {.class_dim = -1, .ignore_index = -7}));
}

TEST(CrossEntropy, SmoothedLabelsAreProbabilities) {
  at::manual_seed(2);
  const at::Tensor logits = at::randn({4, 3}, at::kDouble);
  const at::Tensor labels = at::tensor({0, 2, 1, 1});
  const at::Tensor smooth = at::one_hot(labels.to(at::kLong), 3).to(at::kDouble) * 0.7 + 0.1;
  const at::Tensor want = -(smooth * logits.log_softmax(1)).sum(1);
  ExpectClose(cross_entropy(logits, smooth), want);
  ExpectClose(cross_entropy(logits, labels, {.label_smoothing = 0.3}), want);
}

TEST(CrossEntropy, WhatDoesNotFitIsRefused) {
  const at::Tensor logits = at::zeros({2, 4, 5});
  EXPECT_THAT(ErrorOf([&] {
                cross_entropy(logits, at::zeros({2, 4}, at::kLong));
              }),
              HasSubstr("labels must have shape [2, 5], have [2, 4]; class_dim -1 says that the "
                        "classes are the last dimension"));
  EXPECT_THAT(ErrorOf([&] {
                cross_entropy(logits, at::zeros({2, 4}));
              }),
              HasSubstr("class numbers must be integers"));
  EXPECT_THAT(ErrorOf([&] { cross_entropy(at::zeros({2}), at::zeros({2}, at::kLong)); }),
              HasSubstr("the logits must be [batch, classes]"));
  EXPECT_THAT(
      ErrorOf([&] {
        cross_entropy(at::zeros({2, 3}), at::zeros({2}, at::kLong), {.label_smoothing = 1.5});
      }),
      HasSubstr("label_smoothing must be from 0 to 1, is 1.5"));
}

TEST(BinaryCrossEntropy, LogitsAndProbabilitiesAgree) {
  const at::Tensor logits = Double({-2, 0.5, 3, 0}).reshape({2, 2});
  const at::Tensor targets = Double({0, 1, 0.25, 1}).reshape({2, 2});
  const at::Tensor p = logits.sigmoid();
  const at::Tensor want = -(targets * p.log() + (1 - targets) * (1 - p).log());
  ExpectClose(muster::binary_cross_entropy(logits, targets), want.mean(1));
  ExpectClose(muster::binary_cross_entropy(logits, targets, {.shape = LossShape::kPerElement}),
              want);
  ExpectClose(muster::binary_cross_entropy(p, targets, {.from_logits = false}), want.mean(1));
  // Certain and wrong: finite, and so is the gradient.
  at::Tensor certain = Double({0, 1}).set_requires_grad(true);
  const at::Tensor loss =
      muster::binary_cross_entropy(certain, Double({1, 0}), {.from_logits = false});
  EXPECT_TRUE(loss.isfinite().all().item<bool>());
  EXPECT_TRUE(torch::autograd::grad({loss.sum()}, {certain})[0].isfinite().all().item<bool>());
}

TEST(BinaryCrossEntropy, SmoothingMovesTargetsToTheMiddle) {
  const at::Tensor logits = Double({-2, 0.5});
  ExpectClose(muster::binary_cross_entropy(logits, Double({0, 1}), {.label_smoothing = 0.2}),
              muster::binary_cross_entropy(logits, Double({0.1, 0.9})));
}

TEST(Errors, AreMeansOverAllDimensionsButTheFirst) {
  const at::Tensor outputs = at::arange(12, at::kDouble).reshape({2, 3, 2});
  const at::Tensor targets = at::zeros({2, 3, 2}, at::kDouble);
  ExpectClose(mean_squared_error(outputs, targets), Double({55.0 / 6, (506.0 - 55) / 6}));
  ExpectClose(mean_absolute_error(outputs, targets), Double({2.5, 8.5}));
  EXPECT_EQ(mean_absolute_error(outputs, targets, LossShape::kPerElement).sizes(), outputs.sizes());
  // [batch] stays as it is.
  ExpectClose(mean_squared_error(Double({3, 4}), Double({1, 1})), Double({4, 9}));
}

TEST(Errors, HingeAndHuberAreTheirFormulas) {
  ExpectClose(hinge(Double({0.3, -2, 0.3, 2}), Double({1, -1, 0, 1})), Double({0.7, 0, 1.3, 0}));
  ExpectClose(huber(Double({0.5, -3, 1}), Double({0, 0, 0}), 2), Double({0.125, 4, 0.5}));
}

TEST(Errors, NothingIsBroadcast) {
  EXPECT_THAT(ErrorOf([] {
                mean_squared_error(at::zeros({4, 1}), at::zeros({4}));
              }),
              HasSubstr("mean_squared_error: outputs and targets must have one shape, are [4, 1] "
                        "and [4]"));
  EXPECT_THAT(ErrorOf([] { hinge(at::zeros({}), at::zeros({})); }), HasSubstr("a scalar"));
  EXPECT_THAT(ErrorOf([] { huber(at::zeros({1}), at::zeros({1}), 0); }),
              HasSubstr("delta must be above 0, is 0"));
}

TEST(Losses, OfFewBitsAreComputedInFloat32) {
  const at::Tensor logits = at::randn({2, 3}).to(at::kBFloat16);
  for (const at::Tensor& loss :
       {cross_entropy(logits, at::tensor({0, 1})), mean_squared_error(logits, at::zeros({2, 3})),
        muster::binary_cross_entropy(logits, at::ones({2, 3}))})
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
}

TEST(Losses, OfAnEmptyBatchAreEmptyAndDifferentiable) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{0, 3}, std::vector<int64_t>{0, 3, 4}}) {
    std::vector<int64_t> label_shape = shape;
    label_shape.erase(label_shape.begin() + 1);
    at::Tensor x = at::zeros(shape).set_requires_grad(true);
    const at::Tensor same = at::zeros(shape);
    for (const at::Tensor& loss :
         {cross_entropy(x, at::zeros(label_shape, at::kLong)), cross_entropy(x, same),
          muster::binary_cross_entropy(x, same), mean_squared_error(x, same),
          mean_absolute_error(x, same), hinge(x, same), huber(x, same)}) {
      EXPECT_EQ(loss.sizes(), at::IntArrayRef({0}));
      EXPECT_EQ(torch::autograd::grad({loss.sum()}, {x})[0].sizes(), at::IntArrayRef(shape));
    }
  }
}

}  // namespace
}  // namespace muster
