#include "common/exported/losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include "common/exported/metric_names.h"

namespace muster::exported {
namespace {

using testing::HasSubstr;

Loss LossOf(const Json& json) {
  auto loss = MakeLoss(json, "program.loss");
  EXPECT_TRUE(loss.ok()) << loss.status();
  return *loss;
}
at::Tensor Numbers(std::vector<double> values, at::IntArrayRef sizes) {
  return at::tensor(values, at::kFloat).reshape(sizes);
}
void ExpectNear(const at::Tensor& values, std::vector<double> expected) {
  EXPECT_TRUE(at::allclose(values.to(at::kFloat), at::tensor(expected, at::kFloat))) << values;
}

// By hand: log(e^1 + e^2) - 2 = 0.313262, log(e^1 + e^2) - 1 = 1.313262.
TEST(ExportedLoss, CrossEntropyOfExamplesAndOfTokens) {
  const Loss loss = LossOf("cross_entropy");
  const at::Tensor logits = Numbers({1, 2, 1, 2, 1, 2, 2, 1}, {4, 2});
  const at::Tensor labels = at::tensor({1, 0, 1, 1}, at::kLong);
  const std::vector<double> expected = {0.313262, 1.313262, 0.313262, 1.313262};
  ExpectNear(loss.values(logits, labels), expected);
  // One value for each token, so that its weight can be given to it.
  const at::Tensor tokens = labels.reshape({2, 2});
  const at::Tensor each = loss.values(logits.reshape({2, 2, 2}), tokens);
  EXPECT_EQ(each.sizes(), tokens.sizes());
  EXPECT_EQ(loss.Weights(tokens).sizes(), tokens.sizes());
  ExpectNear(each.flatten(), expected);
  EXPECT_EQ(loss.values(logits.narrow(0, 0, 0), labels.narrow(0, 0, 0)).sizes(),
            at::IntArrayRef({0}));
  EXPECT_EQ(loss.Weights(labels.narrow(0, 0, 0)).sizes(), at::IntArrayRef({0}));
}

TEST(ExportedLoss, IgnoredClassNumbersHaveNoWeight) {
  const at::Tensor labels = at::tensor({3, -100, 0, 255}, at::kLong);
  ExpectNear(LossOf("cross_entropy").Weights(labels), {1, 0, 1, 1});
  const Loss padded = LossOf({{"name", "cross_entropy"}, {"ignore_index", 0}});
  ExpectNear(padded.Weights(labels), {1, 1, 0, 1});
  // Bytes hold no -100: 156, which has its bits, is a class like any.
  ExpectNear(LossOf("cross_entropy").Weights(at::tensor({156, 3}, at::kByte)), {1, 1});
  // Probabilities, and losses that know no classes: examples count alike.
  EXPECT_FALSE(padded.Weights(Numbers({0.5, 0.5}, {1, 2})).defined());
  EXPECT_EQ(padded.values(Numbers({1, 2, 2, 1}, {2, 2}), Numbers({0, 1, 0, 1}, {2, 2})).dim(), 1);
  EXPECT_FALSE(LossOf("mean_squared_error").Weights(labels).defined());
}

TEST(ExportedLoss, OfOutputsAndTargetsOfOneShape) {
  const at::Tensor output = Numbers({0, 2, -1, 3}, {2, 2}), target = Numbers({1, 2, 1, 0}, {2, 2});
  ExpectNear(LossOf("mean_squared_error").values(output, target), {0.5, 6.5});
  ExpectNear(LossOf("mean_absolute_error").values(output, target), {0.5, 2.5});
  ExpectNear(LossOf("huber").values(output, target), {0.25, 2.0});
  ExpectNear(LossOf({{"name", "huber"}, {"delta", 2.0}}).values(output, target), {0.25, 3.0});
  // Labels 0 count as -1.
  ExpectNear(LossOf("hinge").values(output, Numbers({1, 1, 0, 0}, {2, 2})), {0.5, 2.0});
  ExpectNear(LossOf("binary_cross_entropy").values(Numbers({0, 0}, {2, 1}), Numbers({0, 1}, {2})),
             {0.693147, 0.693147});
}

TEST(ExportedLoss, RefusesWhatCannotBeRight) {
  const at::Tensor output = Numbers({0, 2, -1, 3}, {2, 2});
  EXPECT_THROW(LossOf("mean_squared_error").values(output, Numbers({1, 2}, {2})), c10::Error);
  EXPECT_THROW(LossOf("cross_entropy").values(output, Numbers({1, 0}, {2})), c10::Error);
  EXPECT_THROW(LossOf("cross_entropy").values(output, at::tensor({1}, at::kLong)), c10::Error);
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
                   at::tensor({1, 0, 1, 0}, at::kLong).reshape({2, 2}), {}, -1);
  const at::Tensor sums = accuracy->metric->Increment(tokens.output, tokens.target);
  ExpectNear(sums, {3, 4});
  const auto binary = MakeNamedMetric("binary_accuracy", "program.metrics[0]", /*logits=*/true);
  ExpectNear(binary->metric->Increment(Numbers({0.3, -0.3}, {2}), Numbers({1, 0}, {2})), {2, 2});
  EXPECT_THAT(MakeNamedMetric("acuracy", "program.metrics[0]", false).status().message(),
              HasSubstr("did you mean \"accuracy\""));
  EXPECT_FALSE(MakeNamedMetric({{"name", "top_k_accuracy"}, {"k", 0}}, "m", false).ok());
}

TEST(ExportedMetric, Refusals) {
  const std::vector<std::pair<Json, const char*>> refusals = {
      {3, "must name a metric"},
      {{{"name", 3}}, "must name a metric"},
      {"precison", "did you mean \"precision\""},
      {{{"name", "recall"}, {"treshold", 1}}, "did you mean \"threshold\""},
      {{{"name", "precision"}, {"top_k", 0}}, "m.top_k must not be below 1, is 0"},
      {{{"name", "precision"}, {"class_id", -1}}, "m.class_id must not be below 0, is -1"},
      {{{"name", "f1_score"}, {"average", "makro"}}, "must be one of micro, macro, weighted"},
      {{{"name", "f1_score"}, {"average", "macro"}}, "m.classes is missing"},
      {{{"name", "f1_score"}, {"beta", 2}}, "beta"},
      {{{"name", "fbeta_score"}, {"beta", 0}}, "m.beta must be above 0, is 0"},
      {{{"name", "auc"}, {"curve", "roc"}}, "must be one of ROC, PR, is \"roc\""},
      {{{"name", "auc"}, {"num_thresholds", 1}}, "must not be below 2, is 1"},
      {{{"name", "confusion_matrix"}}, "m.classes is missing"},
      {{{"name", "confusion_matrix"}, {"classes", 1000}}, "must be from 2 to 256, is 1000"},
      {{{"name", "auc"}, {"as", "a b"}}, "must be made of letters"},
      {{{"name", "auc"}, {"as", "loss"}}, "and not be loss"},
  };
  for (const auto& [json, sentence] : refusals) {
    const absl::Status status = MakeNamedMetric(json, "m", false).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfiguration) << json;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(sentence)) << json;
  }
}

TEST(ExportedMetric, IsShownByAnotherName) {
  const auto area =
      MakeNamedMetric({{"name", "auc"}, {"curve", "PR"}, {"as", "auc_pr"}}, "m", true);
  ASSERT_TRUE(area.ok()) << area.status();
  EXPECT_EQ(area->name, "auc_pr");
  EXPECT_EQ(area->metric->width(), 400);
}

// A metric counts what the loss counts.
TEST(ExportedMetric, IgnoredTokensDoNotCount) {
  const Loss loss = LossOf({{"name", "cross_entropy"}, {"class_dim", 1}});
  // [batch, tokens, classes]; of the four tokens that count two are right.
  const at::Tensor scores = Numbers({1, 2, 2, 1, 1, 2, 1, 2, 2, 1, 2, 1}, {2, 3, 2});
  const at::Tensor labels = at::tensor({1, 0, 0, -100, 1, -100}, at::kLong).reshape({2, 3});
  const at::Tensor weights = loss.Weights(labels);
  const auto sums = [&](const char* name, const at::Tensor& output, int64_t class_dim) {
    const auto metric = MakeNamedMetric(name, "program.metrics[0]", false);
    const MetricArguments a = ArgumentsFor(*metric, output, labels, weights, class_dim);
    return metric->metric->WeightedIncrement(a.output, a.target, a.weights);
  };
  ExpectNear(sums("accuracy", scores, -1), {2, 4});
  ExpectNear(sums("f1_score", scores, -1), {2, 4, 4});
  ExpectNear(sums("f1_score", scores.movedim(-1, 1), 1), {2, 4, 4});
  ExpectNear(sums("mean", scores, -1), {12, 8});
  ExpectNear(sums("sum", scores, -1), {12});
  // The classes come second: the same numbers in another order.
  ExpectNear(sums("accuracy", scores.movedim(-1, 1), 1), {2, 4});
  ExpectNear(sums("mean", scores.movedim(-1, 1), 1), {12, 8});
}

}  // namespace
}  // namespace muster::exported
