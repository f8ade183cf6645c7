// A replica with tensors of many types and layouts, and an optimizer's slots. A seed determines all
// values, which are the same on every device. Tests compare the bits of two replicas.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/train/test_program.h"

namespace muster::testing {

inline const Job& OddJob() {
  static const Job job = [] {
    Job made;
    made.program = "test";
    made.global_batch_size = 4;
    made.epochs = 1;
    return made;
  }();
  return job;
}

inline void BuildOdd(TestProgram& self, Builder& builder) {
  Tensors& model = *self.model;
  model.parameter("wide", at::zeros({10, 100}));
  model.parameter("turned", at::zeros({30, 40}).t());
  model.parameter("picture", at::zeros({4, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
  model.parameter("narrow", at::zeros({7}, at::kBFloat16));
  model.parameter("double", at::zeros({5}, at::kDouble));
  model.parameter("none", at::zeros({0}));
  model.parameter("scalar", at::zeros({}));
  model.buffer("count", at::zeros({3}, at::kLong));
  model.buffer("flags", at::zeros({9}, at::kBool));
  model.buffer("bytes", at::zeros({5}, at::kByte));
  builder.model("net", self.model);
  builder.optimizer("adam", {"net"}, {{"name", "adam"}, {"amsgrad", true}}, 0.1);
  builder.dataset(Split::kTrain, Tensors2(at::ones({2, 1}), at::ones({2})));
}

// Returns values from the CPU's random generator, for tensors on any device.
inline at::Tensor OddValues(const at::Tensor& like) {
  if (like.scalar_type() == at::kBool) return at::rand(like.sizes()).gt(0.5);
  if (!like.is_floating_point()) return at::randint(0, 200, like.sizes()).to(like.scalar_type());
  at::Tensor values = at::randn(like.sizes());
  if (values.numel() > 2) {
    values.view({-1})[0] = std::numeric_limits<double>::quiet_NaN();
    values.view({-1})[1] = -0.0;
  }
  return values.to(like.scalar_type());
}

inline std::unique_ptr<Replica> OddReplica(c10::Device device, uint64_t seed) {
  auto replica = Replica::Make(
      OddJob(),
      [] {
        auto program = std::make_unique<TestProgram>();
        program->on_build = BuildOdd;
        return program;
      },
      device);
  EXPECT_TRUE(replica.ok()) << replica.status();
  const at::NoGradGuard no_grad;
  at::manual_seed(seed);
  for (const at::Tensor& tensor : (*replica)->state()) tensor.detach().copy_(OddValues(tensor));
  return *std::move(replica);
}

inline std::vector<std::string> BitsOf(const Replica& replica) {
  std::vector<std::string> all;
  for (const at::Tensor& tensor : replica.state()) {
    const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
    all.emplace_back(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  }
  return all;
}

inline LoopState OddState(const Replica& replica, int64_t steps) {
  LoopState state = InitialLoopState(OddJob(), replica);
  state.step = steps;
  return state;
}

}  // namespace muster::testing
