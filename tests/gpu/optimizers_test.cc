// Each update rule and each way of clipping on a GPU, beside the CPU: parameters and slots.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <set>

#include "common/optim/optimizer.h"
#include "tests/gpu/gpu_test.h"
#include "tests/unit/optim/odd_parameters.h"
#include "tests/unit/optim/recurrences.h"

namespace muster {
namespace {

using Tensors = std::vector<at::Tensor>;

std::vector<Json> Specs() {
  std::vector<Json> specs;
  for (const auto& rule : recurrences::Cases()) specs.push_back(Json::parse(rule.spec));
  for (const char* name : {"sgd", "adam"}) {
    for (const char* clip : {"clipvalue", "clipnorm", "global_clipnorm"})
      specs.push_back({{"name", name}, {clip, 0.3}});
  }
  // Two groups of one optimizer: parameters 1 and 2 as the groups say, the others as it does.
  for (const char* name : {"adamw", "rmsprop"}) {
    specs.push_back({{"name", name},
                     {"weight_decay", 0.1},
                     {"global_clipnorm", 1.0},
                     {"groups",
                      {{{"parameters", "one"}, {"weight_decay", 0.0}},
                       {{"parameters", "two"}, {"learning_rate_scale", 0.1}}}}});
  }
  return specs;
}

std::string NameIn(const Json& spec) {
  return spec.is_string() ? spec.get<std::string>() : spec.at("name").get<std::string>();
}

// A new optimizer needs a recurrence too, with which the GPU is compared.
TEST(Optimizers, AllAreCompared) {
  std::set<std::string> compared;
  for (const Json& spec : Specs()) {
    const auto parsed = ParseOptimizer(spec);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed.ok() ? parsed->groups.size() : 0, spec.contains("groups") ? 2u : 0u);
    compared.insert(NameIn(spec));
  }
  for (const std::string& name : OptimizerNames()) {
    const auto rule = ParseOptimizer(name);
    ASSERT_TRUE(rule.ok()) << rule.status();
    // Rows are updated on the host.
    EXPECT_TRUE(ForTablesAlone(rule->rule) || compared.contains(name)) << name;
  }
}

Tensors CopiesOn(const c10::Device& device, const Tensors& tensors) {
  Tensors copies;  // with their strides
  for (const at::Tensor& t : tensors)
    copies.push_back(t.defined() ? at::empty_like(t, t.options().device(device)).copy_(t) : t);
  return copies;
}

void ExpectClose(const at::Tensor& device, const at::Tensor& host, const std::string& what) {
  const bool wide = host.scalar_type() == at::kDouble;
  EXPECT_TRUE(at::allclose(device.cpu(), host, wide ? 1e-10 : 1e-4, wide ? 1e-10 : 6e-5)) << what;
  EXPECT_EQ(device.strides(), host.strides()) << what;
}

class OptimizersOnGpu : public testing::GpuTest,
                        public ::testing::WithParamInterface<at::ScalarType> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    at::manual_seed(7);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, OptimizersOnGpu, ::testing::Values(at::kFloat, at::kDouble),
                         ::testing::PrintToStringParamName());

TEST_P(OptimizersOnGpu, UpdateAsOnTheCpu) {
  for (const Json& spec : Specs()) {
    const std::string text = spec.dump();
    const Tensors host = OddParameters(GetParam()), device = CopiesOn(device_, host);
    std::vector<int> groups;
    if (spec.contains("groups")) groups = {0, 1, 2, 0, 0, 0};
    const auto on_host = MakeOptimizer(spec, host, groups),
               on_device = MakeOptimizer(spec, device, groups);
    ASSERT_TRUE(on_host.ok() && on_device.ok()) << on_host.status() << on_device.status();
    for (int step = 0; step < 20; ++step) {
      Tensors gradients = GradientsLike(host);
      if (step % 3 == 1) gradients[2] = at::Tensor();  // leaves the parameter and its slots alone
      const double rate = 0.1 / (1 + step);
      (*on_device)->Update(CopiesOn(device_, gradients), rate);
      (*on_host)->Update(gradients, rate);
    }
    for (size_t i = 0; i < host.size(); ++i) {
      ExpectClose(device[i], host[i], text + " parameter " + std::to_string(i));
      for (size_t s = 0; s < (*on_host)->slot_names().size(); ++s) {
        const auto slot = static_cast<int>(s);
        ExpectClose((*on_device)->slot(slot)[i], (*on_host)->slot(slot)[i],
                    text + " " + (*on_host)->slot_names()[s] + " " + std::to_string(i));
      }
    }
  }
}

TEST_P(OptimizersOnGpu, ClipAsOnTheCpu) {
  for (const ClipOptions& clip : {ClipOptions{.clipvalue = 0.3}, ClipOptions{.clipnorm = 0.3},
                                  ClipOptions{.global_clipnorm = 0.3}}) {
    Tensors host = GradientsLike(OddParameters(GetParam()));
    host[1] = at::Tensor();
    const Tensors device = CopiesOn(device_, host);
    EXPECT_NEAR(GradientNorm(device), GradientNorm(host), 1e-5);
    ClipGradients(host, clip);
    ClipGradients(device, clip);
    for (size_t i = 0; i < host.size(); ++i)
      if (host[i].defined()) ExpectClose(device[i], host[i], "gradient " + std::to_string(i));
  }
}

}  // namespace
}  // namespace muster
