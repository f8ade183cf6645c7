#include "examples/programs/models/models.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cmath>

#include "examples/programs/models/initializers.h"

namespace muster::nn {
namespace {

class OneThread : public ::testing::Environment {
 public:
  void SetUp() override { at::set_num_threads(1); }
};
[[maybe_unused]] const auto* const one_thread = ::testing::AddGlobalTestEnvironment(new OneThread);

TEST(GlorotUniform, FillsItsInterval) {
  at::manual_seed(3);
  const at::Tensor kernel = GlorotUniform({32, 16, 3, 3});
  const double limit = std::sqrt(6.0 / (9 * 16 + 9 * 32));
  EXPECT_LE(kernel.abs().max().item<double>(), limit);
  EXPECT_GT(kernel.max().item<double>(), 0.98 * limit);
  EXPECT_LT(kernel.min().item<double>(), -0.98 * limit);
  EXPECT_NEAR(kernel.mean().item<double>(), 0, 0.05 * limit);
  EXPECT_NEAR(kernel.var().item<double>(), limit * limit / 3, 0.05 * limit * limit);
}

TEST(Convnet, HasTheTutorialsParameters) {
  const auto model = MakeConvnet({});
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& item : model->module()->named_parameters()) {
    shapes[item.key()] = item.value().sizes().vec();
    EXPECT_TRUE(item.value().requires_grad());
    EXPECT_TRUE(item.value().is_contiguous());
  }
  EXPECT_THAT(shapes, ::testing::UnorderedElementsAre(
                          std::pair("conv.weight", std::vector<int64_t>{32, 1, 3, 3}),
                          std::pair("conv.bias", std::vector<int64_t>{32}),
                          std::pair("dense.weight", std::vector<int64_t>{64, 5408}),
                          std::pair("dense.bias", std::vector<int64_t>{64}),
                          std::pair("output.weight", std::vector<int64_t>{10, 64}),
                          std::pair("output.bias", std::vector<int64_t>{10})));
}

TEST(Convnet, ComputesConvReluPoolDense) {
  at::manual_seed(5);
  const auto model = MakeConvnet({.filters = 4, .hidden = 7, .classes = 3});
  const auto p = model->module()->named_parameters();
  for (const auto& item : p) item.value().detach().uniform_(-0.3, 0.3);  // biases too
  const at::Tensor images = at::rand({5, 1, 28, 28});
  at::Tensor x = at::relu(at::conv2d(images, p["conv.weight"], p["conv.bias"]));
  x = at::max_pool2d(x, 2).contiguous().reshape({5, 4 * 13 * 13});
  x = at::relu(at::linear(x, p["dense.weight"], p["dense.bias"]));
  const at::Tensor expected = at::linear(x, p["output.weight"], p["output.bias"]);
  const at::Tensor output = model->forward(images);
  EXPECT_TRUE(at::allclose(output, expected, 1e-4, 1e-5));

  std::vector<at::Tensor> gradients;
  for (const at::Tensor& logits : {expected, output}) {
    for (const auto& item : p) item.value().mutable_grad() = at::Tensor();
    logits.square().sum().backward();
    for (const auto& item : p) gradients.push_back(item.value().grad().clone());
  }
  for (size_t i = 0; i < p.size(); ++i) {
    EXPECT_TRUE(at::allclose(gradients[i], gradients[p.size() + i], 1e-3, 1e-4)) << p[i].key();
  }
}

TEST(Convnet, TakesImagesOfAnyStrides) {
  const auto model = MakeConvnet({});
  const at::Tensor images = at::rand({3, 28, 28, 2}).permute({0, 3, 1, 2}).slice(1, 1);
  EXPECT_TRUE(
      at::allclose(model->forward(images), model->forward(images.contiguous()), 1e-5, 1e-6));
}

TEST(Convnet, AnEmptyBatchWorksForwardAndBackward) {
  const auto model = MakeConvnet({});
  const at::Tensor output = model->forward(at::zeros({0, 1, 28, 28}));
  EXPECT_EQ(output.sizes(), (std::vector<int64_t>{0, 10}));
  output.sum().backward();
  for (const auto& item : model->module()->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(at::equal(item.value().grad(), at::zeros(item.value().sizes()))) << item.key();
  }
}

TEST(Convnet, OneSeedGivesOneModel) {
  at::manual_seed(9);
  const auto a = MakeConvnet({});
  at::manual_seed(9);
  const auto b = MakeConvnet({});
  const auto p = a->module()->parameters(), q = b->module()->parameters();
  for (size_t i = 0; i < p.size(); ++i) EXPECT_TRUE(at::equal(p[i], q[i]));
}

TEST(Convnet, OtherImagesAreRefused) {
  const auto model = MakeConvnet({});
  EXPECT_THROW(model->forward(at::zeros({2, 3, 28, 28})), c10::Error);
  EXPECT_THROW(model->forward(at::zeros({2, 784})), c10::Error);
}

TEST(LinearUnit, ComputesItsFormula) {
  const auto unit = MakeLinearUnit({.features = 3, .kernel = {1, 2, 3}, .bias = 0.5});
  const at::Tensor x = at::tensor({1.0f, 0.0f, -1.0f, 2.0f, 2.0f, 2.0f}).reshape({2, 3});
  EXPECT_TRUE(at::equal(unit->forward(x), at::tensor({-1.5f, 12.5f})));
  EXPECT_EQ(unit->forward(x.slice(0, 0, 0)).sizes(), (std::vector<int64_t>{0}));
}

TEST(LinearUnit, Initialises) {
  const auto same = MakeLinearUnit({.features = 3, .kernel = {0.25}});
  EXPECT_TRUE(at::equal(same->module()->named_parameters()["weight"], at::ones({1, 3}).mul(0.25)));
  const auto drawn = MakeLinearUnit({.features = 3})->module()->named_parameters()["weight"];
  EXPECT_LE(drawn.abs().max().item<double>(), std::sqrt(6.0 / 4));
  EXPECT_GT(drawn.abs().min().item<double>(), 0);
  EXPECT_THROW(MakeLinearUnit({.features = 3, .kernel = {1, 2}}), c10::Error);
}

}  // namespace
}  // namespace muster::nn
