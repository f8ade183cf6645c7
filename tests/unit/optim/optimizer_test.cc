#include "common/optim/optimizer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "common/optim/update_rules.h"
#include "tests/unit/optim/odd_parameters.h"
#include "tests/unit/optim/recurrences.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

std::unique_ptr<Optimizer> OptimizerFrom(const char* spec, Tensors parameters) {
  auto optimizer = MakeOptimizer(Json::parse(spec), std::move(parameters), {});
  if (!optimizer.ok()) throw std::runtime_error(optimizer.status().ToString());
  return *std::move(optimizer);
}

// The fused kernels use all threads for the smallest tensor, and waiting for one on a busy machine
// takes longer than all the rest.
class OneThread : public ::testing::Environment {
 public:
  void SetUp() override { at::set_num_threads(1); }
};
[[maybe_unused]] const auto* const one_thread = ::testing::AddGlobalTestEnvironment(new OneThread);

using recurrences::Case;
using recurrences::Cases;
using recurrences::Element;

std::vector<double> Values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

class RecurrenceTest : public ::testing::TestWithParam<std::tuple<int, at::ScalarType>> {};

TEST_P(RecurrenceTest, TwentyUpdatesFollowIt) {
  const Case& rule = Cases()[std::get<0>(GetParam())];
  const at::ScalarType dtype = std::get<1>(GetParam());
  at::manual_seed(7);
  const Tensors parameters = OddParameters(dtype);
  const auto optimizer = OptimizerFrom(rule.spec, parameters);
  std::vector<std::vector<Element>> elements;
  for (const at::Tensor& parameter : parameters) {
    auto& list = elements.emplace_back();
    for (const double value : Values(parameter)) list.push_back({value, rule.initial_a});
  }
  for (int step = 0; step < 20; ++step) {
    const double lr = 0.1 / (1 + step);
    Tensors gradients = GradientsLike(parameters);
    if (step % 3 == 1) gradients[2] = at::Tensor();  // leaves the parameter and its slots alone
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const std::vector<double> values = Values(gradients[i]);
      for (size_t j = 0; j < values.size(); ++j) rule.step(elements[i][j], values[j], lr);
    }
    optimizer->Update(gradients, lr);
  }
  const double tolerance = dtype == at::kDouble ? 1e-11 : 3e-5;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<double> values = Values(parameters[i]);
    for (size_t j = 0; j < values.size(); ++j) {
      EXPECT_NEAR(values[j], elements[i][j].p, tolerance) << "parameter " << i << " at " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, RecurrenceTest,
                         ::testing::Combine(::testing::Range(0, static_cast<int>(Cases().size())),
                                            ::testing::Values(at::kFloat, at::kDouble)),
                         [](const auto& info) {
                           return std::string(Cases()[std::get<0>(info.param)].name) +
                                  (std::get<1>(info.param) == at::kDouble ? "Float64" : "Float32");
                         });

TEST(Optimizer, SlotsAreThereFromTheStartAndKeepTheirPlace) {
  const Tensors parameters = OddParameters(at::kFloat);
  const auto optimizer = OptimizerFrom(R"({"name": "adam", "amsgrad": true})", parameters);
  EXPECT_THAT(optimizer->slot_names(),
              ElementsAre("exp_avg", "exp_avg_sq", "step", "max_exp_avg_sq"));
  std::vector<const void*> before;
  for (int s = 0; s < 4; ++s) {
    ASSERT_EQ(optimizer->slot(s).size(), parameters.size());
    for (const at::Tensor& slot : optimizer->slot(s)) before.push_back(slot.const_data_ptr());
  }
  EXPECT_EQ(optimizer->slot(0)[5].strides(), parameters[5].strides());
  optimizer->Update(GradientsLike(parameters), 0.1);
  size_t at = 0;
  for (int s = 0; s < 4; ++s) {
    for (const at::Tensor& slot : optimizer->slot(s))
      EXPECT_EQ(slot.const_data_ptr(), before[at++]);
  }
  EXPECT_EQ(optimizer->slot(2)[0].item<float>(), 1);
}

TEST(Optimizer, RestoredSlotsContinueExactly) {
  for (const Case& rule : Cases()) {
    const Tensors parameters = OddParameters(at::kFloat);
    Tensors copies;
    for (const at::Tensor& parameter : parameters) copies.push_back(parameter.clone());
    const auto optimizer = OptimizerFrom(rule.spec, parameters),
               other = OptimizerFrom(rule.spec, copies);
    optimizer->Update(GradientsLike(parameters), 0.1);
    for (size_t i = 0; i < parameters.size(); ++i) {
      copies[i].copy_(parameters[i]);
      for (size_t s = 0; s < optimizer->slot_names().size(); ++s) {
        other->slot(s)[i].copy_(optimizer->slot(s)[i]);
      }
    }
    const Tensors gradients = GradientsLike(parameters);
    Tensors same;
    for (const at::Tensor& gradient : gradients) same.push_back(gradient.clone());
    optimizer->Update(gradients, 0.1);
    other->Update(same, 0.1);
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(at::equal(parameters[i], copies[i])) << rule.name << " parameter " << i;
    }
  }
}

TEST(Optimizer, UpdatesLeavesThatRequireGradients) {
  at::Tensor parameter = at::ones({3}).requires_grad_(true);
  OptimizerFrom(R"("sgd")", {parameter})->Update({at::ones({3})}, 0.5);
  EXPECT_TRUE(at::equal(parameter.detach(), at::full({3}, 0.5)));
}

TEST(Optimizer, GradientsOfAnotherLayoutOrDtypeAreConverted) {
  for (const Case& rule : Cases()) {
    const at::Tensor start = at::randn({4, 3, 5, 2});
    const at::Tensor plain = start.clone(), last = start.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor gradient = at::randn({4, 3, 5, 2});
    OptimizerFrom(rule.spec, {plain})->Update({gradient.clone()}, 0.1);
    OptimizerFrom(rule.spec, {last})->Update({gradient.to(at::kDouble)}, 0.1);
    EXPECT_TRUE(at::allclose(plain, last, 1e-5, 1e-6)) << rule.name;
  }
}

TEST(Optimizer, MixedDtypesAndBfloat16) {
  for (const Case& rule : Cases()) {
    const Tensors parameters = {at::ones({9}), at::ones({9}).to(at::kBFloat16),
                                at::ones({9}).to(at::kDouble)};
    const Tensors gradients = {at::full({9}, 0.5), at::full({9}, 0.5).to(at::kBFloat16),
                               at::full({9}, 0.5).to(at::kDouble)};
    OptimizerFrom(rule.spec, parameters)->Update(gradients, 0.1);
    EXPECT_LT(parameters[0][0].item<double>(), 1) << rule.name;
    EXPECT_TRUE(at::allclose(parameters[0].to(at::kDouble), parameters[2], 1e-5)) << rule.name;
    EXPECT_TRUE(at::allclose(parameters[1].to(at::kDouble), parameters[2], 1e-2)) << rule.name;
  }
}

TEST(Optimizer, NoParametersOrNoGradients) {
  OptimizerFrom(R"("adam")", {})->Update({}, 0.1);
  const at::Tensor parameter = at::ones({2});
  const auto optimizer = OptimizerFrom(R"({"name": "adam", "global_clipnorm": 1})", {parameter});
  optimizer->Update({at::Tensor()}, 0.1);
  EXPECT_TRUE(at::equal(parameter, at::ones({2})));
  EXPECT_EQ(optimizer->slot(2)[0].item<float>(), 0);
}

TEST(Optimizer, GradientsThatCannotBelongToTheParametersAreRefused) {
  const auto optimizer = OptimizerFrom(R"("sgd")", {at::ones({2, 3})});
  EXPECT_THROW(optimizer->Update({}, 0.1), c10::Error);
  EXPECT_THROW(optimizer->Update({at::ones({3, 2})}, 0.1), c10::Error);
}

TEST(Optimizer, ThreadCountDoesNotChangeABit) {
  for (const Case& rule : Cases()) {
    Json spec = Json::parse(rule.spec);
    if (spec.is_string()) spec = Json::object({{"name", spec}});
    spec["global_clipnorm"] = 0.3;
    const at::Tensor start = at::randn({300001}), gradient = at::randn({300001});
    Tensors results;
    for (const int count : {1, 2, 3}) {
      at::set_num_threads(count);
      results.push_back(start.clone());
      auto optimizer = OptimizerFrom(spec.dump().c_str(), {results.back()});
      optimizer->Update({gradient.clone()}, 0.1);
      optimizer->Update({gradient.clone()}, 0.1);
    }
    EXPECT_TRUE(at::equal(results[0], results[1])) << rule.name;
    EXPECT_TRUE(at::equal(results[0], results[2])) << rule.name;
  }
  at::set_num_threads(1);
}

TEST(Clip, ByValue) {
  const at::Tensor gradient = at::arange(-3, 4, at::kFloat);
  ClipGradients({at::Tensor(), gradient}, {.clipvalue = 1.5});
  EXPECT_THAT(Values(gradient), ElementsAre(-1.5, -1.5, -1, 0, 1, 1.5, 1.5));
}

TEST(Clip, ByNormScalesEachTensorAlone) {
  const at::Tensor large = at::full({4}, 2.0), small = at::full({4}, 0.1), none = at::zeros({3});
  ClipGradients({large, small, at::Tensor(), none, at::ones({0})}, {.clipnorm = 1});
  EXPECT_TRUE(at::allclose(large, at::full({4}, 0.5)));
  EXPECT_TRUE(at::allclose(small, at::full({4}, 0.1)));
  EXPECT_TRUE(at::equal(none, at::zeros({3})));
}

TEST(Clip, ByGlobalNorm) {
  const at::Tensor a = at::full({9}, 1.0), b = at::full({2, 2}, 2.0, at::kDouble),
                   c = at::full({}, std::sqrt(11.0)).to(at::kBFloat16);
  ClipGradients({a, at::Tensor(), b, c}, {.global_clipnorm = 3});  // together 9 + 16 + 11 = 6^2
  EXPECT_TRUE(at::allclose(a, at::full({9}, 0.5), 1e-3));
  EXPECT_TRUE(at::allclose(b, at::full({2, 2}, 1.0, at::kDouble), 1e-3));
  const at::Tensor below = at::full({4}, 1.0);
  ClipGradients({below}, {.global_clipnorm = 3});
  EXPECT_TRUE(at::equal(below, at::full({4}, 1.0)));
}

TEST(Clip, ANormOfManyElementsIsExact) {
  const at::Tensor gradient = at::full({100003}, 0.1);
  ClipGradients({gradient}, {.clipnorm = 1});
  EXPECT_NEAR(gradient[0].item<double>(), 1 / std::sqrt(100003.0), 1e-9);
}

TEST(Clip, StridedGradients) {
  const at::Tensor base = at::full({4, 4}, 9.0), view = base.slice(1, 0, 4, 2);
  ClipGradients({view.fill_(1)}, {.clipnorm = std::sqrt(2.0)});
  EXPECT_TRUE(at::allclose(view, at::full({4, 2}, 0.5)));
  EXPECT_EQ(base[0][1].item<float>(), 9);
}

TEST(Clip, NaNIsNotHidden) {
  const at::Tensor gradient = at::ones({3});
  gradient[1] = std::numeric_limits<double>::quiet_NaN();
  ClipGradients({gradient}, {.global_clipnorm = 1});
  EXPECT_TRUE(std::isnan(gradient[0].item<double>()));
}

TEST(Clip, BelongsToTheOptimizer) {
  const at::Tensor parameter = at::zeros({4});
  const auto optimizer = OptimizerFrom(R"({"name": "sgd", "clipnorm": 1})", {parameter});
  optimizer->Update({at::full({4}, 8.0)}, 1);
  EXPECT_TRUE(at::allclose(parameter, at::full({4}, -0.5)));
  EXPECT_EQ(optimizer->Describe(), "sgd(momentum=0, nesterov=false, weight_decay=0, clipnorm=1)");
}

struct RefusedSpec {
  const char* spec;
  const char* sentence;
};

TEST(OptimizerSpec, Refusals) {
  const std::vector<RefusedSpec> refusals = {
      {R"("adm")", "optimizer.name is \"adm\", did you mean \"adam\"?"},
      {R"("lion-king-9")", "must be one of sgd, adam, adamw, adagrad, rmsprop"},
      {R"({})", "optimizer.name must be one of"},
      {R"(7)", "optimizer must be a JSON object"},
      {R"(null)", "optimizer must be a JSON object"},
      {R"({"name": 3})", "optimizer.name must be a string"},
      {R"({"name": "sgd", "momentun": 0.9})", "did you mean \"momentum\"?"},
      {R"({"name": "sgd", "beta1": 0.9})", "unknown key \"optimizer.beta1\""},
      {R"({"name": "sgd", "momentum": 1})", "optimizer.momentum must be in [0, 1), is 1"},
      {R"({"name": "sgd", "momentum": "0.9"})", "optimizer.momentum must be a number"},
      {R"({"name": "sgd", "nesterov": true})", "optimizer.nesterov needs a momentum"},
      {R"({"name": "adam", "beta2": -0.1})", "optimizer.beta2 must be in [0, 1), is -0.1"},
      {R"({"name": "adam", "epsilon": -1})", "optimizer.epsilon must not be below 0"},
      {R"({"name": "adam", "learning_rate": 0.1})", "set the job's \"learning_rate\""},
      {R"({"name": "adam", "clipvalue": -1})", "optimizer.clipvalue must not be below 0"},
      {R"({"name": "adam", "clipvalue": 1, "clipnorm": 1})", "cannot be combined"},
  };
  for (const RefusedSpec& refusal : refusals) {
    const auto optimizer = MakeOptimizer(Json::parse(refusal.spec), {}, {});
    ASSERT_FALSE(optimizer.ok()) << refusal.spec;
    EXPECT_EQ(ExitCodeOf(optimizer.status()), ExitCode::kConfiguration);
    EXPECT_THAT(std::string(Message(optimizer.status())), HasSubstr(refusal.sentence));
  }
}

TEST(OptimizerSpec, ParametersThatCannotBeUpdated) {
  const auto integers = MakeOptimizer("sgd", {at::ones({2}, at::kLong)}, {});
  EXPECT_THAT(std::string(Message(integers.status())), HasSubstr("parameter 0"));
  const auto gaps = MakeOptimizer("sgd", {at::ones({2}), at::ones({4, 4}).slice(1, 0, 2)}, {});
  EXPECT_THAT(std::string(Message(gaps.status())), HasSubstr("parameter 1"));
}

TEST(OptimizerSpec, Defaults) {
  EXPECT_EQ(OptimizerFrom(R"("adam")", {})->Describe(),
            "adam(beta1=0.9, beta2=0.999, epsilon=1e-07, weight_decay=0, amsgrad=false)");
  EXPECT_EQ(OptimizerFrom(R"("adamw")", {})->Describe(),
            "adamw(beta1=0.9, beta2=0.999, epsilon=1e-07, weight_decay=0.004, amsgrad=false)");
  EXPECT_EQ(DefaultLearningRate("sgd"), 0.01);
  EXPECT_EQ(DefaultLearningRate(Json{{"name", "sgd"}, {"momentum", 0.9}}), 0.01);
  EXPECT_EQ(DefaultLearningRate("adam"), 0.001);
  EXPECT_EQ(DefaultLearningRate(Json()), 0.001);
}

}  // namespace
}  // namespace muster
