// Several losses in one step: together, in turn, and what is refused.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <sstream>

#include "tests/unit/train/step/cycle_gan.h"
#include "tests/unit/train/step/cycle_gan_reference.h"
#include "tests/unit/train/step/steps_job.h"

namespace muster {
namespace {

using testing::CycleGan;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LeastSquares;
using ::testing::Not;
using ::testing::Pair;
using testing::RunLocally;
using testing::RunResult;
using testing::SquaredError;
using testing::StepsJob;
using testing::TestProgram;

void Together(TestProgram& p) {
  p.on_build = CycleGan::Build;
  p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    step.minimize(CycleGan::Objectives(self, batch));
  };
}

void ExpectEqual(const RunResult& run, const std::vector<float>& want, double tolerance) {
  ASSERT_TRUE(run.status.ok()) << run.status;
  for (const auto& replica : run.replicas) {
    const at::Tensor got = CycleGan::Flat(replica);
    EXPECT_TRUE(at::equal(got, CycleGan::Flat(run.replicas[0]))) << "bit-identical";
    const double error = (got - at::tensor(want)).abs().max().item<double>();
    EXPECT_LT(error, tolerance);
  }
}

class Objectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, Objectives, ::testing::Values(1, 2, 3));

TEST_P(Objectives, FourOptimizersHavePythonsGradients) {
  Job job = StepsJob(CycleGan::kBatch, 1);
  job.optimizer = "sgd";  // of all: p <- p - gradient
  job.learning_rate = 1.0;
  const RunResult run = RunLocally(job, GetParam(), Together);
  ASSERT_TRUE(run.status.ok()) << run.status;
  job.learning_rate = 0.0;
  const RunResult still = RunLocally(job, 1, Together);
  const at::Tensor gradient = CycleGan::Flat(still.replicas[0]) - CycleGan::Flat(run.replicas[0]);
  EXPECT_LT((gradient - at::tensor(testing::kCycleGanGradients)).abs().max().item<double>(), 1e-5);
}

TEST_P(Objectives, FourOptimizersTogetherEqualPythonAfterTwentySteps) {
  for (const int64_t accumulate : {1, 3}) {
    Job job = StepsJob(CycleGan::kBatch, CycleGan::kSteps);
    job.accumulate_steps = accumulate;
    ExpectEqual(RunLocally(job, GetParam(), Together), testing::kCycleGanTogether, 1e-5);
  }
}

TEST_P(Objectives, FourOptimizersInTurnEqualThatOrderInPython) {
  const RunResult run =
      RunLocally(StepsJob(CycleGan::kBatch, CycleGan::kSteps), GetParam(), [](TestProgram& p) {
        p.on_build = CycleGan::Build;
        p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
          for (const char* name : {"g", "f", "x", "y"})
            step.minimize(self.optimizers.at(name), CycleGan::Losses(self, batch).at(name));
        };
      });
  ExpectEqual(run, testing::kCycleGanInTurn, 1e-5);
}

TEST_P(Objectives, EveryMicroBatchMinimizesForTheSameOptimizers) {
  Job job = StepsJob(CycleGan::kBatch, 2);
  job.accumulate_steps = 2;
  const RunResult run = RunLocally(job, GetParam(), [](TestProgram& p) {
    p.on_build = CycleGan::Build;
    p.on_step = [calls = 0](TestProgram& self, Step& step, const data::Batch& batch) mutable {
      const char* name = calls++ % 2 == 0 ? "g" : "f";
      step.minimize(self.optimizers.at(name), CycleGan::Losses(self, batch).at(name));
    };
  });
  EXPECT_THAT(
      std::string(Message(run.status)),
      HasSubstr("with accumulate_steps 2, all micro-batches of a step minimize for the same "
                "optimizers in the same order: the first did so for \"g\", number 2 for \"f\""));
}

// An update that can be undone needs a copy of the earlier state. The first step that needs the
// copy is run again.
TEST_P(Objectives, OneCallForAllNeedsNoCopyAndRunsEachStepOnce) {
  const auto calls = [](int replicas, bool together) {
    std::atomic<int> bodies = 0;
    const RunResult run = RunLocally(StepsJob(CycleGan::kBatch, 4), replicas, [&](TestProgram& p) {
      p.on_build = CycleGan::Build;
      p.on_step = [&](TestProgram& self, Step& step, const data::Batch& batch) {
        ++bodies;
        if (together) return step.minimize(CycleGan::Objectives(self, batch));
        for (const char* name : {"g", "f", "x", "y"})
          step.minimize(self.optimizers.at(name), CycleGan::Losses(self, batch).at(name));
      };
    });
    EXPECT_TRUE(run.status.ok()) << run.status;
    return bodies.load();
  };
  EXPECT_EQ(calls(GetParam(), true), 4 * GetParam());
  EXPECT_EQ(calls(GetParam(), false), 5 * GetParam()) << "the first step begins as one call does";
}

// Checks a run that replica `failing` ended in step 3. A replica that had not committed step 2 by
// then is one step behind (the next generation gives it the newest state). No replica is between
// two steps.
void ExpectWhole(const RunResult& run, const RunResult& one, const RunResult& two, size_t failing) {
  ASSERT_TRUE(one.status.ok()) << one.status;
  ASSERT_TRUE(two.status.ok()) << two.status;
  const at::Tensor after_one = CycleGan::Flat(one.replicas[0]);
  const at::Tensor after_two = CycleGan::Flat(two.replicas[0]);
  for (size_t r = 0; r < run.replicas.size(); ++r) {
    const at::Tensor got = CycleGan::Flat(run.replicas[r]);
    EXPECT_TRUE(at::equal(got, after_two) || (r != failing && at::equal(got, after_one))) << r;
  }
}

TEST_P(Objectives, NothingChangesBeforeTheCommitAndAFailureLeavesNoTrace) {
  const auto failing = [](int64_t at) {
    return [at](TestProgram& p) {
      p.on_build = CycleGan::Build;
      p.on_step = [at](TestProgram& self, Step& step, const data::Batch& batch) {
        const at::Tensor before = self.model->named_parameters()["y.w1"].detach().clone();
        step.minimize(CycleGan::Objectives(self, batch));
        EXPECT_TRUE(at::equal(before, self.model->named_parameters()["y.w1"]));
        if (step.number() == at && step.replica() == step.num_replicas() - 1)
          throw std::runtime_error("in the middle");
      };
    };
  };
  const RunResult failed = RunLocally(StepsJob(CycleGan::kBatch, 5), GetParam(), failing(3));
  EXPECT_THAT(std::string(Message(failed.status)), HasSubstr("in the middle"));
  const RunResult two = RunLocally(StepsJob(CycleGan::kBatch, 2), GetParam(), failing(0));
  const RunResult one = RunLocally(StepsJob(CycleGan::kBatch, 1), GetParam(), failing(0));
  ExpectWhole(failed, one, two, failed.replicas.size() - 1);
}

// A second minimize() that differentiates through what the first one changed.
TEST_P(Objectives, ALossFromBeforeAnUpdateIsRefusedWithTheMend) {
  for (const std::string rule : {"adam", "sgd", "rmsprop", "adagrad"}) {
    Job job = StepsJob(CycleGan::kBatch, 2);
    job.optimizer = rule;
    const RunResult run = RunLocally(job, GetParam(), [](TestProgram& p) {
      p.on_build = CycleGan::Build;
      p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
        const auto losses = CycleGan::Losses(self, batch);
        step.minimize(self.optimizers.at("x"), losses.at("x"));
        step.minimize(self.optimizers.at("f"), losses.at("f"));  // through x's new weights
      };
    });
    EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
    EXPECT_THAT(std::string(Message(run.status)),
                HasSubstr("the loss of optimizer \"f\" was computed before the update of optimizer "
                          "\"x\", and depends on what that changed: minimize both in one call, "
                          "minimize({{x, its loss}, {f, its loss}}), or compute this loss after"))
        << rule;
  }
}

TEST_P(Objectives, LossesOfOneOptimizerAddUp) {
  const at::Tensor x = CycleGan::Numbers({12, 2}, 0), y = CycleGan::Numbers({12}, 500);
  const auto run = [&](bool split) {
    return RunLocally(StepsJob(12, 3), GetParam(), [&, split](TestProgram& p) {
      LeastSquares(p, x, y);
      p.on_step = [split](TestProgram& self, Step& step, const data::Batch& batch) {
        const at::Tensor loss = SquaredError(self, batch);
        const OptimizerHandle sgd = self.optimizers["sgd"];
        if (split) {
          step.minimize({{sgd, 0.25 * loss}, {sgd, 0.75 * loss}});
        } else {
          step.minimize(sgd, loss);
        }
      };
    });
  };
  const RunResult one = run(false), two = run(true);
  ASSERT_TRUE(two.status.ok()) << two.status;
  EXPECT_TRUE(at::allclose(one.replicas[0].at("w"), two.replicas[0].at("w"), 1e-5, 1e-6));
  EXPECT_NEAR(one.recorder.losses()[2], two.recorder.losses()[2], 1e-6);
}

TEST_P(Objectives, ExtraLossesBelongToTheOptimizerThatTheyName) {
  const auto run = [&](bool with_handle) {
    Job job = StepsJob(CycleGan::kBatch, 1);
    job.optimizer = "sgd";
    job.learning_rate = 1.0;
    return RunLocally(job, GetParam(), [&, with_handle](TestProgram& p) {
      p.on_build = CycleGan::Build;
      p.on_step = [with_handle](TestProgram& self, Step& step, const data::Batch& batch) {
        const auto all = self.model->named_parameters();
        const at::Tensor penalty = all["g.b1"].square().sum();
        if (with_handle) {
          step.regularize(penalty, self.optimizers["g"]);
          step.add_loss(all["x.b2"].expand_as(batch[0].select(1, 0)), self.optimizers["x"]);
        } else {
          step.regularize(penalty);
        }
        step.minimize({{self.optimizers["x"], CycleGan::Losses(self, batch).at("x")},
                       {self.optimizers["g"], CycleGan::Losses(self, batch).at("g")}});
      };
    });
  };
  const RunResult refused = run(false);
  EXPECT_THAT(
      std::string(Message(refused.status)),
      HasSubstr("regularize was called before a minimize() of several optimizers: say whose "
                "it is, as in regularize(loss, optimizer)"));
  const RunResult got = run(true);
  ASSERT_TRUE(got.status.ok()) << got.status;
  Job job = StepsJob(CycleGan::kBatch, 1);
  job.optimizer = "sgd";
  job.learning_rate = 1.0;
  const RunResult plain = RunLocally(job, 1, Together);
  const auto difference = [&](const char* name) {
    return plain.replicas[0].at(name) - got.replicas[0].at(name);
  };
  // d(sum of b1^2) = 2 b1; d(mean of b2) = 1.
  EXPECT_TRUE(at::allclose(difference("g.b1"), 2 * CycleGan::Numbers({4}, 1100), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(difference("x.b2"), at::ones({1}), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(difference("x.b1"), at::zeros({4}), 1e-4, 1e-5));
}

TEST(Objective, WhatCannotBeMeantIsRefused) {
  const at::Tensor x = at::ones({6, 2}), y = at::ones({6});
  const auto error_of = [&](std::function<void(TestProgram&, Step&, const data::Batch&)> body) {
    const RunResult run = RunLocally(StepsJob(6, 1), 1, [&](TestProgram& p) {
      LeastSquares(p, x, y);
      p.on_step = body;
    });
    EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
    return std::string(Message(run.status));
  };
  EXPECT_THAT(error_of([](TestProgram&, Step& step, const data::Batch&) {
                step.minimize(std::vector<Objective>{});
              }),
              HasSubstr("minimize was called with an empty list"));
  EXPECT_THAT(error_of([](TestProgram& self, Step& step, const data::Batch& batch) {
                step.minimize({{OptimizerHandle{7}, SquaredError(self, batch)}});
              }),
              HasSubstr("an optimizer that build() did not declare"));
  EXPECT_THAT(error_of([](TestProgram& self, Step& step, const data::Batch& batch) {
                step.minimize(self.optimizers["sgd"], batch[1]);
              }),
              HasSubstr("the loss does not depend on any parameter"));
  EXPECT_THAT(error_of([](TestProgram& self, Step& step, const data::Batch& batch) {
                SquaredError(self, batch).sum().backward();
                step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
              }),
              HasSubstr("parameter \"net.w\" has a .grad before minimize(), which a backward() of "
                        "the program's own left there"));
  EXPECT_THAT(error_of([](TestProgram& self, Step& step, const data::Batch& batch) {
                step.minimize(self.optimizers["sgd"], SquaredError(self, batch));
                step.report("learning_rate/sgd", batch[1]);
              }),
              HasSubstr("that name is the loop's own"));
}

TEST_P(Objectives, RatesAndNormsOfEachOptimizerAreReported) {
  Job job = StepsJob(CycleGan::kBatch, 4);
  job.optimizer = "sgd";
  job.learning_rate = {{"g", 0.0}, {"f", 0.0}, {"x", 0.25}, {"y", 0.0}};
  job.summary.every_steps = 2;
  const RunResult run = RunLocally(job, GetParam(), Together);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.recorder.steps[0].learning_rates,
              ElementsAre(Pair("f", 0), Pair("g", 0), Pair("x", 0.25), Pair("y", 0)));
  EXPECT_TRUE(run.recorder.steps[0].gradient_norms.empty());
  ASSERT_EQ(run.recorder.steps[1].gradient_norms.size(), 4u);
  // In a step of the same parameters and batch, a clipped gradient has the norm that it had before.
  job.optimizer = {{"name", "sgd"}, {"global_clipnorm", 1e-3}};
  const RunResult clipped = RunLocally(job, GetParam(), Together);
  const RunResult alone = RunLocally(job, 1, Together);
  EXPECT_NEAR(clipped.recorder.steps[1].gradient_norms.at("g"),
              alone.recorder.steps[1].gradient_norms.at("g"), 1e-4);
  EXPECT_GT(clipped.recorder.steps[1].gradient_norms.at("g"), 1e-2);
  job.summary.every_steps = 1;
  const RunResult first = RunLocally(job, GetParam(), Together);
  const at::Tensor want = at::tensor(testing::kCycleGanGradients).narrow(0, 0, 31);
  EXPECT_NEAR(first.recorder.steps[0].gradient_norms.at("g"), want.norm().item<double>(), 1e-5);
}

TEST_P(Objectives, ParametersWithoutAGradientAreNamedOnce) {
  std::ostringstream said;
  const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(said);
  spdlog::default_logger()->sinks().push_back(sink);
  const RunResult run = RunLocally(StepsJob(6, 3), GetParam(), [&](TestProgram& p) {
    LeastSquares(p, at::ones({6, 2}), at::ones({6}));
    p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
      step.minimize(self.optimizers["sgd"],
                    (at::matmul(batch[0], (*self.model)["w"]) - batch[1]).square());
    };
  });
  spdlog::default_logger()->sinks().pop_back();
  ASSERT_TRUE(run.status.ok()) << run.status;
  const std::string want =
      "1 of the 2 parameters of optimizer \"sgd\" got no gradient in the first step, and are "
      "updated only in steps where they get one: net.b";
  const size_t at = said.str().find(want);
  ASSERT_NE(at, std::string::npos) << said.str();
  EXPECT_EQ(said.str().find(want, at + 1), std::string::npos) << "once";
}

// float32 islands keep float32 gradients: the backward pass is not cast.
TEST_P(Objectives, BackwardRunsOutsideOfAutocast) {
  const at::Tensor x = CycleGan::Numbers({6, 2}, 0), y = CycleGan::Numbers({6}, 500);
  const auto run = [&](Precision precision) {
    Job job = StepsJob(6, 1);
    job.precision = precision;
    job.learning_rate = 1.0;
    return RunLocally(job, GetParam(), [&](TestProgram& p) {
      LeastSquares(p, x, y);
      p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
        const bool mixed = at::autocast::is_autocast_enabled(at::kCPU);
        at::autocast::set_autocast_enabled(at::kCPU, false);
        const at::Tensor prediction =
            at::matmul(batch[0], (*self.model)["w"].unsqueeze(1)).squeeze(1);
        const at::Tensor loss = (prediction - batch[1]).square();
        at::autocast::set_autocast_enabled(at::kCPU, mixed);
        step.minimize(self.optimizers["sgd"], loss);
        EXPECT_EQ(at::autocast::is_autocast_enabled(at::kCPU), mixed) << "as it was";
      };
    });
  };
  const RunResult exact = run(Precision::kFloat32), mixed = run(Precision::kBFloat16);
  ASSERT_TRUE(mixed.status.ok()) << mixed.status;
  EXPECT_TRUE(at::allclose(exact.replicas[0].at("w"), mixed.replicas[0].at("w"), 1e-5, 1e-6));
}

// One overflow among several losses: no update at all, and the scale halves once.
TEST_P(Objectives, AnOverflowOfOneLossSkipsTheWholeStep) {
  Job job = StepsJob(CycleGan::kBatch, 3);
  job.precision = Precision::kFloat16;
  const auto body = [](bool overflow) {
    return [overflow](TestProgram& p) {
      p.on_build = CycleGan::Build;
      p.on_step = [overflow](TestProgram& self, Step& step, const data::Batch& batch) {
        auto objectives = CycleGan::Objectives(self, batch);
        if (overflow && step.number() == 2)
          objectives[1].loss = objectives[1].loss * std::numeric_limits<float>::infinity();
        step.minimize(objectives);
      };
    };
  };
  std::vector<at::Tensor> seen;
  RunResult run = RunLocally(job, GetParam(), body(true));
  ASSERT_TRUE(run.status.ok()) << run.status;
  job.max_steps = 1;
  const RunResult one = RunLocally(job, GetParam(), body(false));
  job.max_steps = 2;
  const RunResult skipped = RunLocally(job, GetParam(), body(true));
  EXPECT_TRUE(at::equal(CycleGan::Flat(one.replicas[0]), CycleGan::Flat(skipped.replicas[0])));
  EXPECT_FALSE(at::equal(CycleGan::Flat(run.replicas[0]), CycleGan::Flat(skipped.replicas[0])));
  EXPECT_TRUE(CycleGan::Flat(run.replicas[0]).isfinite().all().item<bool>());
}

TEST(Objective, AnAbortedReductionLeavesEverythingAsItWas) {
  std::vector<collective::Communicator*> communicators;
  testing::RunOptions options{StepsJob(CycleGan::kBatch, 4),
                              std::vector<c10::Device>(3, c10::Device(at::kCPU)), nullptr};
  options.on_generation = [&](Generation& generation) {
    for (auto& communicator : generation.replicas) communicators.push_back(communicator.get());
  };
  const RunResult aborted = testing::Run(options, [&](TestProgram& p) {
    p.on_build = CycleGan::Build;
    p.on_step = [&](TestProgram& self, Step& step, const data::Batch& batch) {
      step.minimize(CycleGan::Objectives(self, batch));
      if (step.number() == 3 && step.replica() == 0)
        communicators[0]->Abort(PeerLost("worker 7 is gone"));
    };
  });
  EXPECT_EQ(ExitCodeOf(aborted.status), ExitCode::kRetryable);
  const RunResult two = RunLocally(StepsJob(CycleGan::kBatch, 2), 3, Together);
  ExpectWhole(aborted, RunLocally(StepsJob(CycleGan::kBatch, 1), 3, Together), two, 0);
}

}  // namespace
}  // namespace muster
