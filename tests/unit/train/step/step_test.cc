#include "common/train/step/step.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "common/data/pipeline.h"
#include "tests/unit/train/test_program.h"
#include "tests/unit/train/watched_communicator.h"

namespace muster {
namespace {

using testing::Data;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using testing::LeastSquares;
using testing::RunLocally;
using testing::SquaredError;
using testing::TestProgram;

Job MakeJob(int64_t batch, int64_t steps) {
  Job job;
  job.program = "test";
  job.global_batch_size = batch;
  job.max_steps = steps;
  return job;
}

Data MakeData(int64_t n) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({n, 2});
  return {x, at::matmul(x, at::tensor({1.f, -2.f})) + 0.5f + 0.1 * at::randn({n})};
}

// One worker with the whole batch, in double precision, by the formula of the gradient.
std::vector<double> Reference(const Data& data, int64_t batch, int64_t steps) {
  at::Tensor w = at::zeros({2}, at::kDouble), b = at::zeros({}, at::kDouble);
  std::vector<double> losses;
  int64_t at = 0;
  for (int64_t s = 0; s < steps; ++s) {
    const int64_t end = std::min(at + batch, data.x.size(0));
    const at::Tensor x = data.x.slice(0, at, end).to(at::kDouble),
                     y = data.y.slice(0, at, end).to(at::kDouble);
    at = end == data.x.size(0) ? 0 : end;
    const at::Tensor error = at::matmul(x, w) + b - y;
    losses.push_back(error.square().mean().item<double>());
    w = w - 0.1 * 2 * at::matmul(x.t(), error) / x.size(0);
    b = b - 0.1 * 2 * error.mean();
  }
  return losses;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance) << "step " << i + 1;
}

class StepOverReplicas : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, StepOverReplicas, ::testing::Values(1, 2, 3, 5));

TEST_P(StepOverReplicas, EqualsOneWorkerWithTheSameGlobalBatch) {
  // 17 examples in batches of 7: short last batches of 3, smaller than 5 replicas.
  const Data data = MakeData(17);
  Job job = MakeJob(7, 9);
  job.epochs = 3;
  const auto run =
      RunLocally(job, GetParam(), [&](TestProgram& p) { LeastSquares(p, data.x, data.y); });
  ASSERT_TRUE(run.status.ok()) << run.status;
  ExpectNear(run.recorder.losses(), Reference(data, 7, 9), 2e-6);
  for (const auto& replica : run.replicas)
    EXPECT_TRUE(at::equal(replica.at("w"), run.replicas[0].at("w"))) << "bit-identical";
}

TEST_P(StepOverReplicas, AccumulationChangesNothing) {
  const Data data = MakeData(16);
  Job job = MakeJob(16, 6);
  job.accumulate_steps = 3;
  job.epochs = 6;
  const auto run =
      RunLocally(job, GetParam(), [&](TestProgram& p) { LeastSquares(p, data.x, data.y); });
  ASSERT_TRUE(run.status.ok()) << run.status;
  ExpectNear(run.recorder.losses(), Reference(data, 16, 6), 2e-6);
}

TEST_P(StepOverReplicas, AddLossAndRegularizeCountOnce) {
  const Data data = MakeData(10);
  Job job = MakeJob(5, 4);
  job.epochs = 2;
  const auto run = RunLocally(job, GetParam(), [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      step.add_loss(batch[1].square());
      step.regularize(0.5 * (*self.model)["b"].square() + 3);
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  const double first = run.recorder.losses()[0];
  const double want = 2 * data.y.slice(0, 0, 5).square().mean().item<double>() + 3;  // w = b = 0
  EXPECT_NEAR(first, want, 1e-5);
}

TEST_P(StepOverReplicas, ReductionsDivideAsTheySay) {
  const Data data = MakeData(7);
  for (LossReduction reduction :
       {LossReduction::kGlobal, LossReduction::kNominal, LossReduction::kLocalMean}) {
    Job job = MakeJob(5, 2);  // the second batch has 2 examples
    job.epochs = 1;
    job.loss_reduction = reduction;
    job.learning_rate = 0.0;
    const auto run =
        RunLocally(job, GetParam(), [&](TestProgram& p) { LeastSquares(p, data.x, data.y); });
    ASSERT_TRUE(run.status.ok()) << run.status;
    int64_t begin = 0;
    for (int s = 0; s < 2; ++s) {
      const int64_t end = std::min<int64_t>(begin + 5, 7);
      double want = 0;
      for (int r = 0; r < GetParam(); ++r) {
        const auto slice = data::ReplicaSlice(begin, end, r, GetParam());
        if (slice.size() == 0) continue;
        const double sum = data.y.slice(0, slice.begin, slice.end).square().sum().item<double>();
        if (reduction == LossReduction::kGlobal) want += sum / (end - begin);
        if (reduction == LossReduction::kNominal) want += sum / 5;
        if (reduction == LossReduction::kLocalMean) want += sum / slice.size() / GetParam();
      }
      EXPECT_NEAR(run.recorder.losses()[s], want, 1e-5) << "step " << s + 1;
      begin = end;
    }
  }
}

TEST_P(StepOverReplicas, TwoMinimizeCallsApplyInOrder) {
  // The second optimizer's loss depends on the first one's update: a stale parameter would show.
  const Data data = MakeData(8);
  std::vector<double> seen;
  std::mutex mutex;
  Job job = MakeJob(4, 4);
  job.epochs = 2;
  const auto run = RunLocally(job, GetParam(), [&](TestProgram& p) {
    p.on_build = [&](TestProgram& self, Builder& builder) {
      self.model->parameter("a", at::zeros({}));
      auto second = std::make_shared<testing::Tensors>();
      second->parameter("b", at::zeros({}));
      builder.model("first", self.model);
      builder.model("second", second);
      self.model->register_module("second", second);
      self.optimizers["first"] = builder.optimizer("first", {"first"}, "sgd", 0.5);
      self.optimizers["second"] = builder.optimizer("second", {"second"}, "sgd", 1.0);
      builder.dataset(Split::kTrain, testing::Tensors2(data.x, data.y));
    };
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      const at::Tensor a = (*self.model)["a"], b = self.model->named_parameters()["second.b"];
      const at::Tensor ones = at::ones_like(batch[1]);
      step.minimize(self.optimizers["first"],
                    (a - 1).square() * ones);  // a <- a - 0.5 * 2 (a - 1) = 1 at once
      step.minimize(self.optimizers["second"], b * a * ones);  // b <- b - a
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_FLOAT_EQ(run.replicas[0].at("a").item<float>(), 1.f);
  EXPECT_FLOAT_EQ(run.replicas[0].at("second.b").item<float>(), -4.f);
}

TEST_P(StepOverReplicas, UnusedParametersAreLeftAlone) {
  const Data data = MakeData(6);
  const auto run = [&](int64_t steps) {
    Job job = MakeJob(3, steps);
    job.epochs = 2;
    job.optimizer = {{"name", "sgd"}, {"momentum", 0.9}};
    return RunLocally(job, GetParam(), [&](TestProgram& p) {
      LeastSquares(p, data.x, data.y);
      p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
        at::Tensor prediction = at::matmul(batch[0], (*self.model)["w"]);
        if (step.number() <= 2) prediction = prediction + (*self.model)["b"];
        step.minimize(self.optimizers["sgd"], (prediction - batch[1]).square());
      };
    });
  };
  const auto two = run(2), four = run(4);
  ASSERT_TRUE(four.status.ok()) << four.status;
  EXPECT_NE(two.replicas[0].at("b").item<float>(), 0.f);
  EXPECT_TRUE(at::equal(two.replicas[0].at("b"), four.replicas[0].at("b")))
      << "no momentum without a gradient";
  EXPECT_FALSE(at::equal(two.replicas[0].at("w"), four.replicas[0].at("w")));
}

TEST_P(StepOverReplicas, BuffersAreExampleWeightedMeans) {
  const Data data = MakeData(4);
  Job job = MakeJob(4, 1);
  const auto run = RunLocally(job, GetParam(), [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    const auto build = p.on_build;
    p.on_build = [build](TestProgram& self, Builder& builder) {
      self.model->buffer("mean", at::zeros({2}));
      build(self, builder);
    };
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      at::NoGradGuard no_grad;
      (*self.model)["mean"].copy_(batch[0].mean(0));  // NaN on a replica without examples
      at::AutoGradMode grad(true);
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  for (const auto& replica : run.replicas)
    EXPECT_TRUE(at::allclose(replica.at("mean"), data.x.mean(0), 1e-5, 1e-6));
}

TEST_P(StepOverReplicas, ReportedValuesAndMetricsAreGlobal) {
  const Data data = MakeData(10);
  Job job = MakeJob(10, 1);
  const auto run = RunLocally(job, GetParam(), [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    const auto build = p.on_build;
    p.on_build = [build](TestProgram& self, Builder& builder) {
      build(self, builder);
      self.metrics["mse"] = builder.metric("mse", MakeMeanSquaredError());
    };
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      const at::Tensor loss = SquaredError(self, batch);
      step.minimize(self.optimizers["sgd"], loss);
      step.report("parts/squared", batch[1].square());
      step.update(self.metrics["mse"], at::zeros_like(batch[1]), batch[1]);
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  const double want = data.y.square().mean().item<double>();
  EXPECT_NEAR(run.recorder.steps[0].values.at("parts/squared"), want, 1e-5);
  EXPECT_NEAR(run.recorder.steps[0].metrics.at("mse"), want, 1e-5);
  EXPECT_EQ(run.recorder.steps[0].examples, 10);
}

TEST_P(StepOverReplicas, OnCommitSeesTheUpdateAndConstrains) {
  const Data data = MakeData(6);
  const auto run = RunLocally(MakeJob(6, 3), GetParam(), [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
      step.on_commit([&self] { (*self.model)["w"].clamp_(-0.01, 0.01); });
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_LE(run.replicas[0].at("w").abs().max().item<float>(), 0.01f);
}

TEST(Step, ALossThatIsReducedIsRefusedInOneSentence) {
  const Data data = MakeData(6);
  const auto run = RunLocally(MakeJob(6, 1), 1, [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch).mean());
    };
  });
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
  EXPECT_THAT(std::string(Message(run.status)),
              HasSubstr("the loss needs one value for each example, shape [6], and got shape []"));
}

TEST(Step, ReplicasThatReportDifferentNamesAreNamedNotHung) {
  const Data data = MakeData(6);
  const auto run = RunLocally(MakeJob(6, 1), 2, [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
      step.report(step.replica() == 0 ? "left" : "right", batch[1]);
    };
  });
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
  EXPECT_THAT(std::string(Message(run.status)), HasSubstr("did not do the same on all replicas"));
}

TEST(Step, AnExceptionEndsTheRunWithItsMessage) {
  const Data data = MakeData(6);
  const auto run = RunLocally(MakeJob(6, 3), 3, [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    const auto body = p.on_step;
    p.on_step = [body](TestProgram& self, Step& step, const data::Batch& batch) {
      if (step.number() == 2 && step.replica() == 1) throw std::runtime_error("no more luck");
      body(self, step, batch);
    };
  });
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
  EXPECT_EQ(Message(run.status), "train_step failed: no more luck");
  // The step of the exception left no trace anywhere.
  for (const auto& replica : run.replicas)
    EXPECT_TRUE(at::equal(replica.at("w"), run.replicas[0].at("w")));
}

TEST(Step, AFailureBetweenTwoMinimizeCallsLeavesNoTrace) {
  const Data data = MakeData(6);
  const auto run = RunLocally(MakeJob(6, 5), 2, [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    const auto build = p.on_build;
    p.on_build = [build](TestProgram& self, Builder& builder) {
      self.model->buffer("calls", at::zeros({1}));
      build(self, builder);
    };
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      (*self.model)["calls"].add_(1);
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
      if (step.number() == 3) throw std::runtime_error("between");
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
    };
  });
  EXPECT_EQ(Message(run.status), "train_step failed: between");
  const auto good = RunLocally(MakeJob(6, 2), 2, [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
      step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
    };
  });
  ASSERT_TRUE(good.status.ok());
  EXPECT_TRUE(at::equal(run.replicas[0].at("w"), good.replicas[0].at("w")));
  EXPECT_EQ(run.replicas[0].at("calls").item<float>(), 2.f);
}

TEST_P(StepOverReplicas, AnAbortBeforeTheLastReductionLeavesEverythingAsItWas) {
  const Data data = MakeData(6);
  std::vector<collective::Communicator*> communicators;
  const auto set_up = [&](bool abort) {
    return [&, abort](TestProgram& p) {
      LeastSquares(p, data.x, data.y);
      p.on_step = [&, abort](TestProgram& self, Step& step, const data::Batch& batch) {
        step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
        if (abort && step.number() == 3 && step.replica() == 0)
          communicators[0]->Abort(PeerLost("worker 7 is gone"));
      };
    };
  };
  testing::RunOptions options{MakeJob(6, 5),
                              std::vector<c10::Device>(GetParam(), c10::Device(at::kCPU)), nullptr};
  options.on_generation = [&](Generation& generation) {
    for (auto& communicator : generation.replicas) communicators.push_back(communicator.get());
  };
  const auto aborted = testing::Run(options, set_up(true));
  EXPECT_EQ(ExitCodeOf(aborted.status), ExitCode::kRetryable);
  EXPECT_THAT(std::string(Message(aborted.status)), HasSubstr("worker 7 is gone"));
  const auto two = RunLocally(MakeJob(6, 2), GetParam(), set_up(false));
  for (int r = 0; r < GetParam(); ++r)
    EXPECT_TRUE(at::equal(aborted.replicas[r].at("w"), two.replicas[r].at("w")));
}

// A process's first kernels are loaded one by one, which waits for the devices: beside a collective
// that one replica has begun and another one comes to later, neither would end.
TEST_P(StepOverReplicas, NoBucketGoesFromAHookInTheFirstStep) {
  testing::RunOptions options{MakeJob(6, 3),
                              std::vector<c10::Device>(GetParam(), c10::Device(at::kCPU)), nullptr};
  options.job.collective.bucket_bytes = options.job.collective.first_bucket_bytes = 4;
  std::vector<testing::WatchedCommunicator*> watched;
  options.on_generation = [&](Generation& generation) {
    for (auto& communicator : generation.replicas) {
      auto watches = std::make_unique<testing::WatchedCommunicator>(std::move(communicator));
      watched.push_back(watches.get());
      communicator = std::move(watches);
    }
  };
  std::mutex mutex;
  std::map<int64_t, std::vector<int>> from_hooks;  // by step, of each replica
  const auto run = testing::Run(options, [&](TestProgram& p) {
    p.on_build = [](TestProgram& self, Builder& builder) {
      for (const char* name : {"a", "b", "c"}) self.model->parameter(name, at::ones({3}));
      builder.model("net", self.model);
      self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
      builder.dataset(Split::kTrain, testing::Tensors2(at::ones({6, 3}), at::ones({6})));
    };
    p.on_step = [&](TestProgram& self, Step& step, const data::Batch& batch) {
      const testing::WatchedCommunicator& mine = *watched.at(step.replica());
      const int before = mine.all_reduces;
      const at::Tensor first = batch[0] * (*self.model)["a"];
      // By then the gradients of c and b are there.
      first.register_hook([&, before, number = step.number()](const at::Tensor&) {
        const std::lock_guard<std::mutex> lock(mutex);
        from_hooks[number].push_back(mine.all_reduces - before);
      });
      step.minimize(self.optimizers["sgd"],
                    (first * (*self.model)["b"] * (*self.model)["c"]).sum(1));
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  const auto of_all = [](int buckets) { return std::vector<int>(GetParam(), buckets); };
  EXPECT_EQ(from_hooks[1], of_all(0));
  const int launched = GetParam() == 1 ? 0 : 2;  // One replica has no buckets.
  EXPECT_EQ(from_hooks[2], of_all(launched)) << "while the backward pass still runs";
  EXPECT_EQ(from_hooks[3], of_all(launched));
}

TEST(Step, TheGeneratorIsAFunctionOfStepAndReplica) {
  const Data data = MakeData(6);
  std::mutex mutex;
  std::map<std::pair<int64_t, int>, double> first, second;
  for (auto* draws : {&first, &second}) {
    const auto run = RunLocally(MakeJob(6, 2), 2, [&](TestProgram& p) {
      LeastSquares(p, data.x, data.y);
      const auto body = p.on_step;
      p.on_step = [&, draws, body](TestProgram& self, Step& step, const data::Batch& batch) {
        const double draw = at::rand({1}, step.generator()).item<double>();
        {
          std::lock_guard<std::mutex> lock(mutex);
          (*draws)[{step.number(), step.replica()}] = draw;
        }
        body(self, step, batch);
      };
    });
    ASSERT_TRUE(run.status.ok());
  }
  EXPECT_EQ(first, second);
  std::set<double> distinct;
  for (const auto& [key, value] : first) distinct.insert(value);
  EXPECT_EQ(distinct.size(), 4u);
}

}  // namespace
}  // namespace muster
