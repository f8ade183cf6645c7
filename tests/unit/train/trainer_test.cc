// Tests refusals before training, and precision.
#include "common/train/trainer.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "common/train/replica/devices/devices.h"
#include "common/train/replica/devices/precision.h"
#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::LeastSquares;
using testing::RunLocally;
using testing::SquaredError;
using testing::TestProgram;

Job MakeJob() {
  Job job;
  job.program = "test";
  job.global_batch_size = 4;
  job.max_steps = 2;
  return job;
}

std::string Refusal(Job job, std::function<void(TestProgram&)> set_up, ExitCode code) {
  const auto run = RunLocally(std::move(job), 1, std::move(set_up));
  EXPECT_EQ(ExitCodeOf(run.status), code);
  EXPECT_EQ(std::string(Message(run.status)).find('\n'), std::string::npos);
  return std::string(Message(run.status));
}

void Small(TestProgram& p) { LeastSquares(p, at::ones({8, 2}), at::ones({8})); }

TEST(Trainer, ABatchSizeIsNeeded) {
  Job job = MakeJob();
  job.global_batch_size.reset();
  EXPECT_EQ(Refusal(job, Small, ExitCode::kConfiguration),
            "the job names no batch size: set \"global_batch_size\" or \"per_replica_batch_size\"");
}

TEST(Trainer, AnUnsizedDatasetIsRefusedButForTraining) {
  const auto set_up = [](TestProgram& p) {
    Small(p);
    p.on_build = [](TestProgram& self, Builder& builder) {
      self.model->parameter("w", at::zeros({2}));
      builder.model("net", self.model);
      builder.dataset(Split::kTrain, [] { return data::FromTensors({at::ones({4, 2})}); });
      builder.dataset(Split::kValidation, [] {
        return data::FromFunction(data::Dataset::kUnknownSize, [](int64_t, const data::Context&) {
          return absl::StatusOr<data::Example>();
        });
      });
    };
  };
  EXPECT_THAT(Refusal(MakeJob(), set_up, ExitCode::kConfiguration), HasSubstr("validation"));
}

TEST(Trainer, UnknownProgramArgumentsSuggestTheNearest) {
  Job job = MakeJob();
  job.program_args = {{"hiden", 3}};
  const auto set_up = [](TestProgram& p) {
    Small(p);
    const auto build = p.on_build;
    p.on_build = [build](TestProgram& self, Builder& builder) {
      int hidden = 0;
      builder.args().Read("hidden", &hidden);
      build(self, builder);
    };
  };
  EXPECT_EQ(Refusal(job, set_up, ExitCode::kConfiguration),
            "unknown key \"program_args.hiden\", did you mean \"hidden\"?");
}

TEST(Trainer, ABuildThatThrowsIsAProgramError) {
  const auto set_up = [](TestProgram& p) {
    p.on_build = [](TestProgram&, Builder&) { throw std::runtime_error("cannot"); };
  };
  EXPECT_EQ(Refusal(MakeJob(), set_up, ExitCode::kProgramFailed), "build failed: cannot");
}

TEST(Trainer, NamesAreUnique) {
  const auto set_up = [](TestProgram& p) {
    p.on_build = [](TestProgram& self, Builder& builder) {
      builder.model("net", self.model);
      builder.model("net", self.model);
    };
  };
  EXPECT_EQ(Refusal(MakeJob(), set_up, ExitCode::kProgramFailed),
            "build: two models are named \"net\"");
}

TEST(Trainer, OptimizersAreAddressedByName) {
  Job job = MakeJob();
  job.learning_rate = {{"sdg", 0.5}};
  EXPECT_THAT(Refusal(job, Small, ExitCode::kConfiguration), HasSubstr("did you mean \"sgd\""));
  job.learning_rate = {{"sgd", 0.0}};
  const auto run = RunLocally(job, 1, Small);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.replicas[0].at("w").abs().sum().item<float>(), 0.f);
}

TEST(Trainer, DroppingEverythingIsRefused) {
  Job job = MakeJob();
  job.global_batch_size = 9;
  job.drop_remainder = true;
  EXPECT_THAT(Refusal(job, Small, ExitCode::kConfiguration),
              HasSubstr("8 examples, fewer than the global batch of 9"));
}

TEST(Devices, AreParsedAndRefused) {
  EXPECT_EQ(ParseDevices("cpu:3")->size(), 3u);
  EXPECT_EQ(ParseDevices("cpu")->size(), 1u);
  for (const char* bad : {"cpu:0", "cpu:", "gpu", "cuda:", "cpu:1x", ""}) {
    const auto devices = ParseDevices(bad);
    ASSERT_FALSE(devices.ok()) << bad;
    EXPECT_EQ(ExitCodeOf(devices.status()), ExitCode::kConfiguration);
  }
}

TEST(Precision, BFloat16TrainsWithFloat32Parameters) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({64, 2}), y = at::matmul(x, at::tensor({1.f, -2.f}));
  Job job = MakeJob();
  job.precision = Precision::kBFloat16;
  job.max_steps.reset();
  job.epochs = 20;
  job.global_batch_size = 16;
  at::ScalarType seen = at::kFloat;
  const auto run = RunLocally(job, 2, [&](TestProgram& p) {
    LeastSquares(p, x, y);
    const auto build = p.on_build;
    p.on_build = [build](TestProgram& self, Builder& builder) {
      build(self, builder);
      (*self.model)["w"];
    };
    p.on_step = [&](TestProgram& self, Step& step, const data::Batch& batch) {
      const at::Tensor prediction = at::matmul(batch[0], (*self.model)["w"]);
      if (step.replica() == 0) seen = prediction.scalar_type();
      step.minimize(self.optimizers["sgd"], (prediction - batch[1]).to(at::kFloat).square());
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(seen, at::kBFloat16);
  EXPECT_EQ(run.replicas[0].at("w").scalar_type(), at::kFloat);
  EXPECT_LT(run.recorder.losses().back(), 1e-3);
}

TEST(Precision, Float16SkipsAnOverflowAndHalvesTheScale) {
  LossScaler scaler(Precision::kFloat16);
  const double scale = scaler.scale();
  std::vector<at::Tensor> gradients = {at::full({2}, scale), at::Tensor(),
                                       at::full({3}, 2 * scale)};
  EXPECT_TRUE(scaler.Unscale(gradients));
  EXPECT_FLOAT_EQ(gradients[2][0].item<float>(), 2.f);
  gradients[0][1] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(scaler.Unscale(gradients));
  EXPECT_EQ(scaler.scale(), scale) << "one scale throughout a step";
  scaler.Advance(/*overflowed=*/true);
  EXPECT_EQ(scaler.scale(), scale / 2);
  for (int i = 0; i < 2000; ++i) scaler.Advance(false);
  EXPECT_EQ(scaler.scale(), scale);
  for (int i = 0; i < 100; ++i) scaler.Advance(true);
  EXPECT_EQ(scaler.scale(), kMinLossScale);
}

TEST(Precision, SkippedStepsInARowAtTheLeastLossScaleAreABrokenRun) {
  EXPECT_TRUE(CheckLossScale(2, 1000, 1000).ok());
  EXPECT_TRUE(CheckLossScale(1, kMaxSkippedSteps - 1, 50).ok());
  const absl::Status broken = CheckLossScale(1, kMaxSkippedSteps, 50);
  EXPECT_EQ(ExitCodeOf(broken), ExitCode::kProgramFailed);
  EXPECT_EQ(
      std::string(Message(broken)),
      "the float16 gradients of 20 steps in a row, up to step 50, were not finite, and the loss "
      "scale is 1, its least, so that nothing is learned any more: set \"precision\" to "
      "\"bfloat16\" or \"float32\", lower the learning rate, or look at the data of these "
      "steps");
}

// From step `from` on, the gradients of one replica are not finite; before, and in step `good`,
// those of all are.
testing::RunResult Overflows(int replicas, int64_t from, int64_t good = 0, bool twice = false) {
  Job job = MakeJob();
  job.precision = Precision::kFloat16;
  job.max_steps = 60;
  job.epochs = 100;
  return RunLocally(job, replicas, [=](TestProgram& p) {
    Small(p);
    p.on_step = [=](TestProgram& self, Step& step, const data::Batch& batch) {
      const bool bad =
          step.number() >= from && step.number() != good && step.replica() + 1 == replicas;
      const double factor = bad ? std::numeric_limits<double>::infinity() : 0.1;
      const auto loss = [&] { return SquaredError(self, batch).to(at::kFloat) * factor; };
      step.minimize(self.optimizers["sgd"], loss());
      if (twice) step.minimize(self.optimizers["sgd"], loss());
    };
  });
}

TEST(Precision, ABrokenFloat16RunEndsOnAllReplicasAtTheSameStep) {
  for (const int replicas : {1, 3}) {
    for (const bool twice : {false, true}) {
      const auto run = Overflows(replicas, 5, 0, twice);
      SCOPED_TRACE(::testing::Message() << replicas << (twice ? " twice" : ""));
      EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed) << run.status;
      EXPECT_THAT(std::string(Message(run.status)), HasSubstr("20 steps in a row, up to step 24"));
      // The replica that finishes first ends the run, maybe before the first one reports the step.
      const auto reported = static_cast<int64_t>(run.recorder.steps.size());
      ASSERT_GE(reported, replicas == 1 ? 24 : 23);
      ASSERT_TRUE(run.recorder.steps.back().loss_scale.has_value());
      EXPECT_EQ(run.recorder.steps.back().loss_scale->skipped_steps, reported - 4);
      EXPECT_EQ(run.recorder.steps.back().loss_scale->scale, 1);
      for (const auto& replica : run.replicas)
        EXPECT_TRUE(replica.at("w").isfinite().all().item<bool>());
    }
  }
}

TEST(Precision, AGoodStepInBetweenIsNoBrokenRun) {
  // 19 in a row, and after step 24 as many again as are wanted.
  const auto run = Overflows(2, 5, 24);
  EXPECT_THAT(std::string(Message(run.status)), HasSubstr("20 steps in a row, up to step 44"));
  Job job = MakeJob();
  ASSERT_TRUE(RunLocally(job, 1, Small).status.ok());
  EXPECT_FALSE(RunLocally(job, 1, Small).recorder.steps[0].loss_scale.has_value());
}

}  // namespace
}  // namespace muster
