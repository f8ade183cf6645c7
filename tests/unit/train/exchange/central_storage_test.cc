// central_storage: what it computes is what replicas with optimizers of their own compute.
#include "common/train/exchange/central_storage.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include <thread>

#include "common/train/replica/replica.h"
#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::LeastSquares;
using testing::RunResult;
using testing::SquaredError;
using testing::TestProgram;

Job StrategyJob(StrategyKind strategy) {
  Job job;
  job.program = "test";
  job.strategy = strategy;
  job.global_batch_size = 5;
  job.epochs = 4;
  job.optimizer = {{"name", "adam"}, {"clipnorm", 0.5}};
  job.learning_rate = 0.05;
  return job;
}

// `clamp`: the program changes parameters at each commit. `separate`: the variables are none of the
// first replica's, as if that were on a GPU.
RunResult Train(StrategyKind strategy, int replicas, bool clamp, bool separate = false) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({13, 3}), y = at::randn({13});
  testing::RunOptions options;
  options.job = StrategyJob(strategy);
  options.devices.assign(replicas, c10::Device(at::kCPU));
  options.separate_variables = separate;
  return testing::Run(std::move(options), [=](TestProgram& p) {
    LeastSquares(p, x, y);
    if (!clamp) return;
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      step.on_commit([w = (*self.model)["w"].detach()] { w.mul_(0.5); });
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
    };
  });
}

TEST(CentralStorage, EqualsMirroredToTheLastBit) {
  for (const int replicas : {1, 2, 3}) {
    for (const bool clamp : {false, true}) {
      const RunResult central = Train(StrategyKind::kCentralStorage, replicas, clamp);
      const RunResult mirrored = Train(StrategyKind::kMirrored, replicas, clamp);
      ASSERT_TRUE(central.status.ok()) << central.status;
      ASSERT_TRUE(mirrored.status.ok()) << mirrored.status;
      EXPECT_EQ(central.recorder.losses(), mirrored.recorder.losses());
      EXPECT_EQ(central.recorder.steps.size(), 12u);
      for (int r = 0; r < replicas; ++r) {
        for (const auto& [name, value] : mirrored.replicas[r])
          EXPECT_TRUE(at::equal(value, central.replicas[r].at(name))) << name << " of " << r;
      }
    }
  }
}

TEST(CentralStorage, WhatOnCommitChangesReachesTheVariables) {
  for (const int replicas : {1, 3}) {
    const RunResult central = Train(StrategyKind::kCentralStorage, replicas, true, true);
    const RunResult mirrored = Train(StrategyKind::kMirrored, replicas, true);
    ASSERT_TRUE(central.status.ok()) << central.status;
    EXPECT_EQ(central.recorder.losses(), mirrored.recorder.losses());
    for (int r = 0; r < replicas; ++r) {
      for (const auto& [name, value] : mirrored.replicas[r])
        EXPECT_TRUE(at::equal(value, central.replicas[r].at(name))) << name << " of " << r;
    }
  }
}

std::vector<at::Tensor> Parameters() { return {at::ones({4}), at::ones({2, 3})}; }

TEST(CentralStorage, SlotsExistOnce) {
  auto optimizers = MakeCentralOptimizers("adam", {Parameters(), Parameters()},
                                          std::chrono::minutes(1), {}, {}, false);
  ASSERT_TRUE(optimizers.ok()) << optimizers.status();
  EXPECT_FALSE((*optimizers)[0]->slot_names().empty());
  EXPECT_TRUE((*optimizers)[1]->slot_names().empty());
}

TEST(CentralStorage, AReplicaThatDoesNotComeIsNamedAfterTheTimeout) {
  auto optimizers = MakeCentralOptimizers("sgd", {Parameters(), Parameters()},
                                          std::chrono::milliseconds(50), {}, {}, false);
  ASSERT_TRUE(optimizers.ok()) << optimizers.status();
  const auto update = [&](int replica) {
    return CatchProgramErrors("an update",
                              [&] { (*optimizers)[replica]->Update(Parameters(), 0.1); });
  };
  EXPECT_THAT(std::string(Message(update(1))),
              HasSubstr("the first replica did not make update 1"));
  EXPECT_THAT(std::string(Message(update(0))), HasSubstr("a replica did not take update 1"));
}

TEST(CentralStorage, AFailureOfTheUpdateIsEveryReplicas) {
  auto optimizers = MakeCentralOptimizers("sgd", {Parameters(), Parameters()},
                                          std::chrono::minutes(1), {}, {}, false);
  ASSERT_TRUE(optimizers.ok()) << optimizers.status();
  const std::vector<at::Tensor> wrong = {at::ones({5}), at::ones({2, 3})};
  std::vector<absl::Status> results(2);
  std::thread other([&] {
    results[1] = CatchProgramErrors("an update", [&] { (*optimizers)[1]->Update(wrong, 0.1); });
  });
  results[0] = CatchProgramErrors("an update", [&] { (*optimizers)[0]->Update(wrong, 0.1); });
  other.join();
  for (const absl::Status& result : results)
    EXPECT_THAT(std::string(Message(result)), HasSubstr("the central update failed"));
}

}  // namespace
}  // namespace muster
