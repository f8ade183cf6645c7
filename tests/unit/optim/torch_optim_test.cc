// The rules against LibTorch's own optimizers: the same parameters and gradients, 20 updates.
#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>

#include "common/optim/optimizer.h"
#include "tests/unit/optim/odd_parameters.h"

namespace muster {
namespace {

using Tensors = std::vector<at::Tensor>;
constexpr double kRate = 0.02;

struct Peer {
  const char* name;
  const char* spec;
  std::function<std::unique_ptr<torch::optim::Optimizer>(Tensors)> make;
};

template <typename Optimizer, typename Options>
auto With(Options options) {
  return [options](Tensors parameters) -> std::unique_ptr<torch::optim::Optimizer> {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

const std::vector<Peer>& Peers() {
  namespace optim = torch::optim;
  static const std::vector<Peer> peers = {
      {"Sgd", R"({"name": "sgd", "weight_decay": 0.01})",
       With<optim::SGD>(optim::SGDOptions(kRate).weight_decay(0.01))},
      {"Momentum", R"({"name": "sgd", "momentum": 0.9})",
       With<optim::SGD>(optim::SGDOptions(kRate).momentum(0.9))},
      {"Nesterov", R"({"name": "sgd", "momentum": 0.9, "nesterov": true, "weight_decay": 0.01})",
       With<optim::SGD>(optim::SGDOptions(kRate).momentum(0.9).nesterov(true).weight_decay(0.01))},
      {"Adam", R"("adam")", With<optim::Adam>(optim::AdamOptions(kRate).eps(1e-7))},
      {"Amsgrad", R"({"name": "adam", "amsgrad": true, "weight_decay": 0.1})",
       With<optim::Adam>(optim::AdamOptions(kRate).eps(1e-7).amsgrad(true).weight_decay(0.1))},
      {"AdamW", R"("adamw")",
       With<optim::AdamW>(optim::AdamWOptions(kRate).eps(1e-7).weight_decay(0.004))},
      {"Adagrad", R"({"name": "adagrad", "weight_decay": 0.01})",
       With<optim::Adagrad>(
           optim::AdagradOptions(kRate).eps(1e-7).initial_accumulator_value(0.1).weight_decay(
               0.01))},
      {"RmsProp", R"({"name": "rmsprop", "weight_decay": 0.01})",
       With<optim::RMSprop>(optim::RMSpropOptions(kRate).alpha(0.9).eps(1e-7).weight_decay(0.01))},
      {"RmsPropCentered",
       R"({"name": "rmsprop", "centered": true, "momentum": 0.9, "epsilon": 1e-3})",
       With<optim::RMSprop>(
           optim::RMSpropOptions(kRate).alpha(0.9).eps(1e-3).centered(true).momentum(0.9))},
  };
  return peers;
}

class PeerTest : public ::testing::TestWithParam<std::tuple<int, at::ScalarType>> {};

TEST_P(PeerTest, TwentyUpdatesAgree) {
  const Peer& peer = Peers()[std::get<0>(GetParam())];
  const at::ScalarType dtype = std::get<1>(GetParam());
  at::manual_seed(11);
  const Tensors parameters = OddParameters(dtype);
  Tensors leaves;
  for (const at::Tensor& parameter : parameters) {
    leaves.push_back(parameter.clone().requires_grad_(true));
  }
  const auto reference = peer.make(leaves);
  auto optimizer = MakeOptimizer(Json::parse(peer.spec), parameters, {});
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  for (int step = 0; step < 20; ++step) {
    Tensors gradients = GradientsLike(parameters);
    for (size_t i = 0; i < leaves.size(); ++i) leaves[i].mutable_grad() = gradients[i].clone();
    if (step % 4 == 2) {
      gradients[3] = at::Tensor();
      leaves[3].mutable_grad() = at::Tensor();
    }
    reference->step();
    (*optimizer)->Update(gradients, kRate);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double tolerance = dtype == at::kDouble ? 1e-11 : 1e-5;
    EXPECT_TRUE(at::allclose(parameters[i], leaves[i].detach(), tolerance, tolerance))
        << "parameter " << i << ":\n"
        << parameters[i] << "\n"
        << leaves[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, PeerTest,
                         ::testing::Combine(::testing::Range(0, static_cast<int>(Peers().size())),
                                            ::testing::Values(at::kFloat, at::kDouble)),
                         [](const auto& info) {
                           return std::string(Peers()[std::get<0>(info.param)].name) +
                                  (std::get<1>(info.param) == at::kDouble ? "Float64" : "Float32");
                         });

}  // namespace
}  // namespace muster
