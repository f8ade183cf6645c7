#include "common/exported/losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include "common/exported/metric_names.h"

namespace muster::exported {
namespace {

using testing::HasSubstr;

Loss Make(const Json& json) {
  auto loss = MakeLoss(json, "program.loss");
  EXPECT_TRUE(loss.ok()) << loss.status();
  return *loss;
}
at::Tensor Numbers(std::vector<double> values, at::IntArrayRef sizes) {
  return at::tensor(values, at::kFloat).reshape(sizes);
}
void ExpectNear(const at::Tensor& values, std::vector<double> expected) {
  EXPECT_TRUE(at::allclose(values, at::tensor(expected, at::kFloat))) << values;
}

// By hand: log(e^1 + e^2) - 2 = 0.313262, log(e^1 + e^2) - 1 = 1.313262.
TEST(ExportedLoss, CrossEntropyOfExamplesAndOfTokens) {
  const Loss loss = Make("cross_entropy");
  const at::Tensor logits = Numbers({1, 2, 1, 2, 1, 2, 2, 1}, {4, 2});
  const at::Tensor labels = at::tensor({1, 0, 1, 1}, at::kLong);
  ExpectNear(loss(logits, labels), {0.313262, 1.313262, 0.313262, 1.313262});
  ExpectNear(loss(logits.reshape({2, 2, 2}), labels.reshape({2, 2})), {0.813262, 0.813262});
  EXPECT_EQ(loss(logits.narrow(0, 0, 0), labels.narrow(0, 0, 0)).sizes(), at::IntArrayRef({0}));
}

TEST(ExportedLoss, OfOutputsAndTargetsOfOneShape) {
  const at::Tensor output = Numbers({0, 2, -1, 3}, {2, 2}), target = Numbers({1, 2, 1, 0}, {2, 2});
  ExpectNear(Make("mean_squared_error")(output, target), {0.5, 6.5});
  ExpectNear(Make("mean_absolute_error")(output, target), {0.5, 2.5});
  ExpectNear(Make("huber")(output, target), {0.25, 2.0});
  ExpectNear(Make({{"name", "huber"}, {"delta", 2.0}})(output, target), {0.25, 3.0});
  // Labels 0 count as -1.
  ExpectNear(Make("hinge")(output, Numbers({1, 1, 0, 0}, {2, 2})), {0.5, 2.0});
  ExpectNear(Make("binary_cross_entropy")(Numbers({0, 0}, {2, 1}), Numbers({0, 1}, {2})),
             {0.693147, 0.693147});
}

TEST(ExportedLoss, RefusesWhatCannotBeRight) {
  const at::Tensor output = Numbers({0, 2, -1, 3}, {2, 2});
  EXPECT_THROW(Make("mean_squared_error")(output, Numbers({1, 2}, {2})), c10::Error);
  EXPECT_THROW(Make("cross_entropy")(output, Numbers({1, 0}, {2})), c10::Error);
  EXPECT_THROW(Make("cross_entropy")(output, at::tensor({1}, at::kLong)), c10::Error);
  EXPECT_THAT(MakeLoss("cross_entropi", "program.loss").status().message(),
              HasSubstr("did you mean \"cross_entropy\""));
  EXPECT_FALSE(MakeLoss(3, "program.loss").ok());
  EXPECT_FALSE(MakeLoss({{"name", "huber"}, {"delta", 0}}, "program.loss").ok());
  EXPECT_FALSE(MakeLoss({{"name", "hinge"}, {"delta", 1}}, "program.loss").ok());
}

TEST(ExportedMetric, ByName) {
  const auto accuracy = MakeNamedMetric("accuracy", "program.metrics[0]", false);
  ASSERT_TRUE(accuracy.ok());
  const MetricArguments tokens =
      ArgumentsFor(*accuracy, Numbers({1, 2, 2, 1, 1, 2, 1, 2}, {2, 2, 2}),
                   at::tensor({1, 0, 1, 0}, at::kLong).reshape({2, 2}));
  const at::Tensor sums = accuracy->metric->Increment(tokens.output, tokens.target);
  ExpectNear(sums, {3, 4});
  const auto binary = MakeNamedMetric("binary_accuracy", "program.metrics[0]", /*logits=*/true);
  ExpectNear(binary->metric->Increment(Numbers({0.3, -0.3}, {2}), Numbers({1, 0}, {2})), {2, 2});
  EXPECT_THAT(MakeNamedMetric("acuracy", "program.metrics[0]", false).status().message(),
              HasSubstr("did you mean \"accuracy\""));
  EXPECT_FALSE(MakeNamedMetric({{"name", "top_k_accuracy"}, {"k", 0}}, "m", false).ok());
}

}  // namespace
}  // namespace muster::exported
