// Training on a GPU: the same numbers as on the CPU, mixed precision, and an abort during a
// reduction. Skipped, with the reason, where there is no device.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "common/train/replica/copy_ahead.h"
#include "tests/gpu/gpu_test.h"
#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using testing::LeastSquares;
using testing::SquaredError;
using testing::TestProgram;

class TrainingOnGpu : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    options_.devices = {device_};
    options_.job.program = "test";
    options_.job.global_batch_size = 7;
    options_.job.epochs = 4;
    at::manual_seed(5);
    x_ = at::randn({17, 2});
    y_ = at::matmul(x_, at::tensor({1.f, -2.f})) + 0.5f;
  }

  testing::RunOptions options_;
  at::Tensor x_, y_;
};

TEST_F(TrainingOnGpu, EqualsTheCpu) {
  const auto set_up = [&](TestProgram& p) { LeastSquares(p, x_, y_); };
  const auto gpu = testing::Run(options_, set_up);
  ASSERT_TRUE(gpu.status.ok()) << gpu.status;
  const auto cpu = testing::RunLocally(options_.job, 1, set_up);
  ASSERT_EQ(gpu.recorder.losses().size(), 12u);
  for (size_t i = 0; i < 12; ++i)
    EXPECT_NEAR(gpu.recorder.losses()[i], cpu.recorder.losses()[i], 1e-5);
}

// Many buckets, from hooks: the first step of a process issues them after its backward pass.
TEST_F(TrainingOnGpu, TinyBucketsGiveTheSame) {
  const auto set_up = [&](TestProgram& p) { LeastSquares(p, x_, y_); };
  const auto one = testing::Run(options_, set_up);
  ASSERT_TRUE(one.status.ok()) << one.status;
  options_.job.collective.bucket_bytes = options_.job.collective.first_bucket_bytes = 4;
  const auto many = testing::Run(options_, set_up);
  ASSERT_TRUE(many.status.ok()) << many.status;
  EXPECT_EQ(many.recorder.losses(), one.recorder.losses());
}

class Rules : public TrainingOnGpu, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Rules,
                         ::testing::Values(R"({"name": "sgd", "momentum": 0.9, "nesterov": true})",
                                           R"({"name": "adam"})", R"({"name": "adamw"})",
                                           R"({"name": "rmsprop"})", R"({"name": "adagrad"})",
                                           R"({"name": "ftrl"})",
                                           R"({"name": "sgd", "clipnorm": 0.1})",
                                           R"({"name": "sgd", "clipvalue": 0.01})",
                                           R"({"name": "adam", "global_clipnorm": 0.1})"));

TEST_P(Rules, UpdateAsOnTheCpu) {
  const auto spec = ParseJson(GetParam(), "optimizer");
  ASSERT_TRUE(spec.ok()) << spec.status();
  options_.job.optimizer = *spec;
  const auto set_up = [&](TestProgram& p) { LeastSquares(p, x_, y_); };
  const auto cpu = testing::RunLocally(options_.job, 1, set_up);
  ASSERT_TRUE(cpu.status.ok()) << cpu.status;
  const auto gpu = testing::Run(options_, set_up);
  ASSERT_TRUE(gpu.status.ok()) << gpu.status;
  for (const auto& [name, value] : cpu.replicas[0])
    EXPECT_TRUE(at::allclose(gpu.replicas[0].at(name).cpu(), value, 1e-4, 1e-6)) << name;
}

// By the loader's threads, into pinned memory and on a stream of their own, or where a step asks.
TEST_F(TrainingOnGpu, CopiesAheadGiveTheSameAsCopiesWithinTheStep) {
  const auto set_up = [&](TestProgram& p) { LeastSquares(p, x_, y_); };
  options_.job.data = {{"prefetch", 0}};
  const auto within = testing::Run(options_, set_up);
  ASSERT_TRUE(within.status.ok()) << within.status;
  for (const int ahead : {1, 4}) {
    options_.job.data = {{"threads", 2}, {"prefetch", ahead}};
    const auto run = testing::Run(options_, set_up);
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_EQ(run.recorder.losses(), within.recorder.losses());
  }
}

TEST_F(TrainingOnGpu, ACopyIsOfPinnedMemoryAndSeenByTheStepsStream) {
  const CopyAhead copies(options_.devices.front());
  for (int i = 0; i < 50; ++i) {
    data::LoadedBatch batch;
    batch.batch = {at::full({1 << 20}, i, at::kInt)};
    ASSERT_TRUE(copies.Start(&batch).ok());
    EXPECT_TRUE(batch.batch[0].is_cuda());
    ASSERT_TRUE(copies.Finish(&batch).ok());
    EXPECT_EQ(batch.batch[0].sum().item<int64_t>(), int64_t{i} << 20);
  }
}

class Mixed : public TrainingOnGpu, public ::testing::WithParamInterface<Precision> {};
INSTANTIATE_TEST_SUITE_P(Precisions, Mixed,
                         ::testing::Values(Precision::kBFloat16, Precision::kFloat16));

TEST_P(Mixed, TrainsWithFloat32Parameters) {
  options_.job.precision = GetParam();
  options_.job.epochs = 60;
  const auto run = testing::Run(options_, [&](TestProgram& p) {
    LeastSquares(p, x_, y_);
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      const at::Tensor prediction = at::matmul(batch[0], (*self.model)["w"]) + (*self.model)["b"];
      step.minimize(self.optimizers["sgd"], (prediction.to(at::kFloat) - batch[1]).square());
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.replicas[0].at("w").scalar_type(), at::kFloat);
  EXPECT_LT(run.recorder.losses().back(), 1e-2);
}

TEST_F(TrainingOnGpu, AnAbortDuringAReductionLeavesTheParametersUntouched) {
  collective::Communicator* communicator = nullptr;
  options_.on_generation = [&](Generation& generation) {
    communicator = generation.replicas[0].get();
  };
  const auto set_up = [&](bool abort) {
    return [&, abort](TestProgram& p) {
      LeastSquares(p, x_, y_);
      p.on_step = [&, abort](TestProgram& self, Step& step, const data::Batch& batch) {
        step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
        if (abort && step.number() == 3) communicator->Abort(PeerLost("worker 7 is gone"));
      };
    };
  };
  const auto aborted = testing::Run(options_, set_up(true));
  EXPECT_EQ(ExitCodeOf(aborted.status), ExitCode::kRetryable);
  options_.on_generation = nullptr;
  options_.job.max_steps = 2;
  const auto two = testing::Run(options_, set_up(false));
  ASSERT_TRUE(two.status.ok()) << two.status;
  EXPECT_TRUE(at::equal(aborted.replicas[0].at("w"), two.replicas[0].at("w")));
}

}  // namespace
}  // namespace muster
