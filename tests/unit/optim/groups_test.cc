// Groups of an optimizer's parameters.
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/optim/optimizer.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

TEST(OptimizerGroups, TheFirstGlobThatMatchesAnyNameWins) {
  const auto spec = ParseOptimizer(Json::parse(
      R"({"name": "adamw", "groups": [{"parameters": "*.bias", "weight_decay": 0},
          {"parameters": ["base.*", "embed?"], "learning_rate_scale": 0.1}]})"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  std::vector<int> matches;
  EXPECT_THAT(AssignGroups(*spec,
                           {{"net.base.0.bias", "base.0.bias"},
                            {"net.base.0.weight", "base.0.weight"},
                            {"net.embed1", "embed1"},
                            {"net.embed10", "embed10"},
                            {"net.tied", "net.head.bias"}},
                           &matches),
              ElementsAre(1, 2, 2, 0, 1));
  EXPECT_THAT(matches, ElementsAre(2, 3));
  EXPECT_EQ(spec->groups[0].text, "weight_decay=0");
  EXPECT_EQ(spec->groups[1].text, "learning_rate_scale=0.1");
  EXPECT_EQ(std::get<AdamSpec>(spec->rule_of(0)).weight_decay, 0.004);
  EXPECT_EQ(std::get<AdamSpec>(spec->rule_of(1)).weight_decay, 0);
  EXPECT_EQ(spec->scale_of(2), 0.1);
}

TEST(OptimizerGroups, AGroupIsAnOptimizerForTheServers) {
  const Json json = Json::parse(
      R"({"name": "sgd", "momentum": 0.9, "weight_decay": 0.1,
          "groups": [{"parameters": "b", "momentum": 0.5, "learning_rate_scale": 2}]})");
  EXPECT_EQ(OptimizerOfGroup(json, 0),
            Json::parse(R"({"name": "sgd", "momentum": 0.9, "weight_decay": 0.1})"));
  EXPECT_EQ(OptimizerOfGroup(json, 1),
            Json::parse(R"({"name": "sgd", "momentum": 0.5, "weight_decay": 0.1})"));
  EXPECT_EQ(OptimizerOfGroup("adam", 0), Json::parse(R"({"name": "adam"})"));
}

TEST(OptimizerGroups, Refusals) {
  const std::pair<const char*, const char*> refusals[] = {
      {R"({"name": "sgd", "groups": {}})", "optimizer.groups must be a list of objects, is {}"},
      {R"({"name": "sgd", "groups": ["*.bias"]})", "optimizer.groups[0] must be a JSON object"},
      {R"({"name": "sgd", "groups": [{"weight_decay": 0}]})",
       "optimizer.groups[0].parameters must be a pattern"},
      {R"({"name": "sgd", "groups": [{"parameters": []}]})",
       "optimizer.groups[0].parameters must be a pattern"},
      {R"({"name": "sgd", "groups": [{"parameters": "a"}, {"parameters": "b", "weight_decai": 0}]})",
       "did you mean \"weight_decay\"?"},
      {R"({"name": "sgd", "groups": [{"parameters": "a", "learning_rate_scal": 0}]})",
       "did you mean \"learning_rate_scale\"?"},
      {R"({"name": "adam", "groups": [{"parameters": "a", "weight_decay": -1}]})",
       "optimizer.groups[0].weight_decay must not be below 0, is -1"},
      {R"({"name": "adam", "groups": [{"parameters": "a", "learning_rate_scale": -1}]})",
       "optimizer.groups[0].learning_rate_scale must not be below 0, is -1"},
      {R"({"name": "adam", "groups": [{"parameters": "a", "learning_rate": 0.1}]})",
       "set \"learning_rate_scale\""},
      {R"({"name": "adam", "groups": [{"parameters": "a", "clipnorm": 1}]})",
       "optimizer.groups[0].clipnorm belongs to the whole optimizer"},
      {R"({"name": "adam", "groups": [{"parameters": "a", "name": "sgd"}]})",
       "optimizer.groups[0].name belongs to the whole optimizer"},
      {R"({"name": "sgd", "groups": [{"parameters": "a", "momentum": 0.5}]})",
       "optimizer.groups[0] would need other slots (momentum_buffer) than its optimizer ()"},
      {R"({"name": "adam", "groups": [{"parameters": "a", "amsgrad": true}]})",
       "are on or off for a whole optimizer"},
      {R"({"name": "ftrl", "groups": [{"parameters": "a", "weight_decay": 0.1}]})",
       "unknown key \"optimizer.groups[0].weight_decay\""},
      {R"({"name": "sgd", "learning_rate_scale": 0.1})",
       "optimizer.learning_rate_scale is a key of a group"},
  };
  for (const auto& [json, sentence] : refusals) {
    const auto spec = ParseOptimizer(Json::parse(json));
    ASSERT_FALSE(spec.ok()) << json;
    EXPECT_EQ(ExitCodeOf(spec.status()), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(spec.status())), HasSubstr(sentence)) << json;
  }
}

class GroupUpdates : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

// Two groups and a rest are three optimizers, bit for bit.
TEST_P(GroupUpdates, AreThoseOfAnOptimizerForEachGroup) {
  const auto& [base, changes] = GetParam();
  Json json = Json::parse(base), slow = {{"parameters", "b"}, {"learning_rate_scale", 0.25}};
  Json other = Json::parse(changes);
  other["parameters"] = "c";
  json["groups"] = Json::array({slow, other});
  at::manual_seed(1);
  const Tensors start = {at::randn({3, 5}), at::randn({7}), at::randn({4}), at::randn({2, 2})};
  const auto copies = [&] {
    Tensors all;
    for (const at::Tensor& tensor : start) all.push_back(tensor.clone());
    return all;
  };
  const std::vector<int> groups = {0, 1, 2, 0};
  const Tensors grouped = copies(), apart = copies();
  const auto all = MakeOptimizer(json, grouped, groups);
  ASSERT_TRUE(all.ok()) << all.status();
  std::vector<std::unique_ptr<Optimizer>> each;
  for (int i = 0; i < 4; ++i)
    each.push_back(*MakeOptimizer(OptimizerOfGroup(json, groups[i]), {apart[i]}, {}));
  for (int step = 0; step < 10; ++step) {
    Tensors gradients;
    for (const at::Tensor& tensor : start) gradients.push_back(at::randn(tensor.sizes()));
    if (step == 4) gradients[1] = at::Tensor();
    for (int i = 0; i < 4; ++i)
      each[i]->Update({gradients[i].defined() ? gradients[i].clone() : gradients[i]},
                      0.1 * (groups[i] == 1 ? 0.25 : 1));
    (*all)->Update(gradients, 0.1);
  }
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(grouped[i], apart[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, GroupUpdates,
    ::testing::Values(
        std::pair(R"({"name": "sgd"})", R"({"weight_decay": 0.1})"),
        std::pair(R"({"name": "sgd", "momentum": 0.9})", R"({"momentum": 0.5, "nesterov": true})"),
        std::pair(R"({"name": "adam"})", R"({"weight_decay": 0.1, "beta1": 0.8, "beta2": 0.9})"),
        std::pair(R"({"name": "adamw"})", R"({"weight_decay": 0, "epsilon": 1e-3})"),
        std::pair(R"({"name": "adagrad"})", R"({"initial_accumulator_value": 0.5})"),
        std::pair(R"({"name": "rmsprop", "momentum": 0.9})", R"({"rho": 0.5, "momentum": 0.1})"),
        std::pair(R"({"name": "ftrl"})", R"({"l1": 0.1, "l2": 0.2, "beta": 0.1})")));

// Clipping is the whole optimizer's: groups are within one norm.
TEST(OptimizerGroups, AreClippedTogether) {
  const Tensors parameters = {at::zeros({1}), at::zeros({1})};
  const auto optimizer = *MakeOptimizer(Json::parse(R"({"name": "sgd", "global_clipnorm": 1,
                      "groups": [{"parameters": "b", "learning_rate_scale": 10}]})"),
                                        parameters, {0, 1});
  optimizer->Update({at::full({1}, 3.0), at::full({1}, 4.0)}, 1);
  EXPECT_TRUE(at::allclose(parameters[0], at::full({1}, -0.6)));
  EXPECT_TRUE(at::allclose(parameters[1], at::full({1}, -8.0)));
}

// A warm-up begins at 0, by which FTRL divides.
TEST(Ftrl, LeavesParametersAndSlotsAloneWhereTheRateIsZero) {
  const at::Tensor parameter = at::full({3}, 2.0f);
  const auto optimizer = *MakeOptimizer("ftrl", {parameter}, {});
  for (const double rate : {0.0, 1e-300, 1e-40}) {
    optimizer->Update({at::full({3}, 5.0f)}, rate);
    EXPECT_TRUE(at::equal(parameter, at::full({3}, 2.0f))) << rate;
    EXPECT_TRUE(at::equal(optimizer->slot(0)[0], at::full({3}, 0.1f)));
    EXPECT_TRUE(at::equal(optimizer->slot(1)[0], at::zeros({3})));
  }
  // From there on it is as if there had been no such step.
  const at::Tensor other = at::full({3}, 2.0f);
  const auto fresh = *MakeOptimizer("ftrl", {other}, {});
  optimizer->Update({at::full({3}, 5.0f)}, 0.1);
  fresh->Update({at::full({3}, 5.0f)}, 0.1);
  EXPECT_TRUE(at::equal(parameter, other)) << "no number is equal to none";
}

}  // namespace
}  // namespace muster
