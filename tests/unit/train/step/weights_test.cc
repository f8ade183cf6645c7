// Weights of examples and tokens: one worker's numbers on any number of replicas.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "common/data/pipeline.h"
#include "muster/metrics.h"
#include "tests/unit/train/step/steps_job.h"
#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::RunLocally;
using testing::RunResult;
using testing::StepsJob;
using testing::Tensors2;
using testing::TestProgram;

constexpr int64_t kExamples = 11, kTokens = 5, kFeatures = 3, kBatch = 4;

struct Sequences {
  at::Tensor x, y, mask;  // [examples, tokens, features], [examples, tokens] twice
};
// Makes sequences of lengths from 0 to 5. Values behind the end of one are NaN.
Sequences MakeSequences() {
  at::manual_seed(11);
  Sequences s{at::randn({kExamples, kTokens, kFeatures}), at::randn({kExamples, kTokens}),
              at::zeros({kExamples, kTokens})};
  for (int64_t i = 0; i < kExamples; ++i) {
    const int64_t length = (i * 7 + 3) % (kTokens + 1);
    s.mask[i].narrow(0, 0, length).fill_(1);
    s.y[i].narrow(0, length, kTokens - length).fill_(std::nan(""));
  }
  return s;
}

at::Tensor TokenLosses(TestProgram& self, const at::Tensor& x, const at::Tensor& y) {
  return (at::matmul(x, (*self.model)["w"]) - y).square();
}

// Batches of (x, y); the mask is where y is a number.
void Tokens(TestProgram& p, const Sequences& s) {
  p.on_build = [s](TestProgram& self, Builder& builder) {
    self.model->parameter("w", at::zeros({kFeatures}));
    builder.model("net", self.model);
    self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
    self.metrics["mse"] = builder.metric("mse", MakeMeanSquaredError());
    builder.dataset(Split::kTrain, Tensors2(s.x, s.y));
    builder.dataset(Split::kValidation, Tensors2(s.x, s.y));
  };
  p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    const at::Tensor mask = batch[1].isnan().logical_not();
    const at::Tensor losses = TokenLosses(self, batch[0], batch[1].nan_to_num(0.0));
    step.regularize(0.3 * (*self.model)["w"].square().sum());
    step.minimize(self.optimizers["sgd"], losses, mask);
    step.report("tokens", at::where(mask, losses, std::nan("")), mask);
    step.report({{"target", {{"square", batch[1].square()}, {"cube", batch[1].pow(3)}}}}, mask);
    step.update(self.metrics["mse"], at::matmul(batch[0], (*self.model)["w"]).detach(), batch[1],
                mask);
  };
  p.on_eval = [](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    const at::Tensor mask = batch[1].isnan().logical_not();
    evaluation.loss(TokenLosses(self, batch[0], batch[1]), mask);
    evaluation.report({{"target", {{"square", batch[1].square()}, {"cube", batch[1].pow(3)}}}},
                      mask);
    evaluation.update(self.metrics["mse"], at::matmul(batch[0], (*self.model)["w"]), batch[1],
                      mask);
  };
}

struct Reference {
  std::vector<double> losses, means;  // with the regularizer, and without
  at::Tensor w = at::zeros({kFeatures}, at::kDouble);
};
// All tokens of a batch together, in double precision.
Reference ByFormula(const Sequences& s, int64_t steps) {
  Reference reference;
  int64_t begin = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t end = std::min(begin + kBatch, kExamples);
    const at::Tensor m = s.mask.slice(0, begin, end).to(at::kBool);
    const at::Tensor x = s.x.slice(0, begin, end).to(at::kDouble).index({m});
    const at::Tensor y = s.y.slice(0, begin, end).to(at::kDouble).index({m});
    begin = end == kExamples ? 0 : end;
    const at::Tensor error = at::matmul(x, reference.w) - y;
    reference.means.push_back(error.square().mean().item<double>());
    reference.losses.push_back(reference.means.back() +
                               0.3 * reference.w.square().sum().item<double>());
    reference.w =
        reference.w - 0.1 * (2 * at::matmul(x.t(), error) / y.size(0) + 0.6 * reference.w);
  }
  return reference;
}

class Weights : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, Weights, ::testing::Values(1, 2, 3, 5));

TEST_P(Weights, PaddedSequencesAverageOverTheTokensOfTheGlobalBatch) {
  const Sequences s = MakeSequences();
  const Reference want = ByFormula(s, 8);
  for (const int64_t accumulate : {1, 2, 3}) {
    Job job = StepsJob(kBatch, 8);
    job.accumulate_steps = accumulate;
    const RunResult run = RunLocally(job, GetParam(), [&](TestProgram& p) { Tokens(p, s); });
    ASSERT_TRUE(run.status.ok()) << run.status;
    for (int64_t step = 0; step < 8; ++step) {
      EXPECT_NEAR(run.recorder.steps[step].loss, want.losses[step], 2e-6) << accumulate;
      EXPECT_NEAR(run.recorder.steps[step].values.at("tokens"), want.means[step], 2e-6);
    }
    EXPECT_NEAR(run.recorder.steps[0].metrics.at("mse"), want.means[0], 2e-6);
    for (const auto& replica : run.replicas) {
      EXPECT_TRUE(at::allclose(replica.at("w").to(at::kDouble), want.w, 1e-5, 2e-6));
      EXPECT_TRUE(at::equal(replica.at("w"), run.replicas[0].at("w"))) << "bit-identical";
    }
  }
}

TEST_P(Weights, OfAPassAreOverItsTokens) {
  const Sequences s = MakeSequences();
  const RunResult run =
      RunLocally(StepsJob(kBatch, 3), GetParam(), [&](TestProgram& p) { Tokens(p, s); });
  ASSERT_TRUE(run.status.ok()) << run.status;
  const EpochReport* pass = run.recorder.Find("validation", 0);
  ASSERT_NE(pass, nullptr);
  const at::Tensor w = run.replicas[0].at("w").to(at::kDouble);
  const at::Tensor error = (at::matmul(s.x.to(at::kDouble), w) - s.y).square();
  const double want = error.index({s.mask.to(at::kBool)}).mean().item<double>();
  EXPECT_NEAR(pass->metrics.at("loss"), want, 1e-6);
  EXPECT_NEAR(pass->metrics.at("mse"), want, 1e-6);
  EXPECT_EQ(pass->examples, kExamples);
}

TEST_P(Weights, OfReportedValuesCountInTheMeansOfAnEpochAndAPass) {
  const Sequences s = MakeSequences();
  const RunResult run =
      RunLocally(StepsJob(kBatch, 6), GetParam(), [&](TestProgram& p) { Tokens(p, s); });
  ASSERT_TRUE(run.status.ok()) << run.status;
  const at::Tensor y = s.y.to(at::kDouble).index({s.mask.to(at::kBool)});
  for (const std::string split : {"train", "validation"}) {
    for (const int64_t epoch : {0, 1}) {
      const EpochReport* report = run.recorder.Find(split, epoch);
      ASSERT_NE(report, nullptr) << split;
      EXPECT_NEAR(report->metrics.at("target/square"), y.square().mean().item<double>(), 2e-6);
      EXPECT_NEAR(report->metrics.at("target/cube"), y.pow(3).mean().item<double>(), 2e-6);
    }
  }
}

// Nobody has to call loss() for no example.
TEST_P(Weights, OfAPassCountWhereAReplicaHasNoExample) {
  const Sequences s = MakeSequences();
  const RunResult run = RunLocally(StepsJob(kBatch, 3), GetParam(), [&](TestProgram& p) {
    Tokens(p, s);
    p.on_eval = [](TestProgram&, Evaluation& evaluation, const data::Batch& batch) {
      if (batch[1].size(0) == 0) return;
      evaluation.loss(batch[1].square(), batch[1].isnan().logical_not());
    };
    p.on_build = [inner = p.on_build](TestProgram& self, Builder& builder) {
      inner(self, builder);
      const Sequences few = MakeSequences();
      builder.dataset(Split::kTest, Tensors2(few.x.narrow(0, 1, 2), few.y.narrow(0, 1, 2)));
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  const at::Tensor y = s.y.narrow(0, 1, 2).to(at::kDouble);
  EXPECT_NEAR(run.recorder.Find("test", 0)->metrics.at("loss"),
              y.index({y.isnan().logical_not()}).square().mean().item<double>(), 1e-6);
}

TEST(ReportedValues, WeightsAndDictionariesAreChecked) {
  const Sequences s = MakeSequences();
  const auto refused = [&](const std::function<void(Evaluation&, const data::Batch&)>& eval) {
    const RunResult run = RunLocally(StepsJob(kBatch, 3), 1, [&](TestProgram& p) {
      Tokens(p, s);
      p.on_eval = [&](TestProgram&, Evaluation& evaluation, const data::Batch& batch) {
        eval(evaluation, batch);
      };
    });
    EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
    return std::string(Message(run.status));
  };
  EXPECT_THAT(
      refused([](Evaluation& e, const data::Batch& b) { e.report("a", b[1], b[1].select(1, 0)); }),
      HasSubstr(
          "report(\"a\") of eval_step and its weights must have one shape, with the 4 examples "
          "as first dimension, and have [4, 5] and [4]"));
  EXPECT_THAT(refused([](Evaluation& e, const data::Batch& b) { e.report(b[1]); }),
              HasSubstr("a dictionary was asked for, and the value is a tensor"));
}

// Weights of examples with other loss reductions, in one step of rate 1 from w = 0.
TEST_P(Weights, OtherReductionsDivideAsDocumented) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({7, kFeatures}), y = at::randn({7}), w = at::rand({7});
  const auto gradient_of = [&](LossReduction reduction, int64_t accumulate, int replicas) {
    Job job = StepsJob(kBatch, 1);
    job.global_batch_size = 8;  // one more than there are
    job.loss_reduction = reduction;
    job.learning_rate = 1.0;
    job.accumulate_steps = accumulate;
    const RunResult run = RunLocally(job, replicas, [&](TestProgram& p) {
      p.on_build = [&](TestProgram& self, Builder& builder) {
        self.model->parameter("w", at::zeros({kFeatures}));
        builder.model("net", self.model);
        self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 1.0);
        builder.dataset(Split::kTrain, [&] { return data::FromTensors({x, y, w}); });
      };
      p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
        step.minimize(self.optimizers["sgd"], TokenLosses(self, batch[0], batch[1]), batch[2]);
      };
    });
    EXPECT_TRUE(run.status.ok()) << run.status;
    return -run.replicas[0].at("w");
  };
  const at::Tensor each = -2 * x * (y * w).unsqueeze(1);  // of sum(w l) at w = 0
  for (const int64_t accumulate : {1, 2}) {
    EXPECT_TRUE(at::allclose(gradient_of(LossReduction::kGlobal, accumulate, GetParam()),
                             each.sum(0) / w.sum(), 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(gradient_of(LossReduction::kNominal, accumulate, GetParam()),
                             each.sum(0) / 8, 1e-5, 1e-6));
    at::Tensor local = at::zeros({kFeatures});
    for (int r = 0; r < GetParam(); ++r) {
      const data::Slice slice = data::ReplicaSlice(0, 7, r, GetParam());
      if (slice.size() == 0) continue;
      local += each.slice(0, slice.begin, slice.end).sum(0) /
               w.slice(0, slice.begin, slice.end).sum() / GetParam();
    }
    EXPECT_TRUE(at::allclose(gradient_of(LossReduction::kLocalMean, accumulate, GetParam()), local,
                             1e-5, 1e-6));
  }
}

TEST_P(Weights, ThatAreAllZeroGiveNoGradientAndNoNan) {
  Sequences s = MakeSequences();
  s.y.fill_(std::nan(""));
  for (const int64_t accumulate : {1, 2}) {
    Job job = StepsJob(kBatch, 2);
    job.accumulate_steps = accumulate;
    const RunResult run = RunLocally(job, GetParam(), [&](TestProgram& p) { Tokens(p, s); });
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_TRUE(at::equal(run.replicas[0].at("w"), at::zeros({kFeatures})));
    EXPECT_EQ(run.recorder.steps[1].loss, 0);
    EXPECT_EQ(run.recorder.steps[1].values.at("tokens"), 0);
  }
}

// Two optimizers with weights of their own, in one minimize().
TEST_P(Weights, OfSeveralLossesAreDividedEachByTheirOwnSum) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({9, kFeatures}), y = at::randn({9}), w = at::rand({9});
  for (const int64_t accumulate : {1, 3}) {
    Job job = StepsJob(kBatch, 1);
    job.global_batch_size = 9;
    job.accumulate_steps = accumulate;
    const RunResult run = RunLocally(job, GetParam(), [&](TestProgram& p) {
      p.on_build = [&](TestProgram& self, Builder& builder) {
        self.model->parameter("w", at::zeros({kFeatures}));
        auto second = std::make_shared<testing::Tensors>();
        second->parameter("v", at::zeros({kFeatures}));
        builder.model("first", self.model);
        builder.model("second", second);
        self.model->register_module("second", second);
        self.optimizers["a"] = builder.optimizer("a", {"first"}, "sgd", 1.0);
        self.optimizers["b"] = builder.optimizer("b", {"second"}, "sgd", 1.0);
        builder.dataset(Split::kTrain, [&] { return data::FromTensors({x, y, w}); });
      };
      p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
        const at::Tensor v = self.model->named_parameters()["second.v"];
        const at::Tensor b = (at::matmul(batch[0], v) - batch[1]).square();
        step.minimize({{self.optimizers["a"], TokenLosses(self, batch[0], batch[1]), batch[2]},
                       {self.optimizers["b"], b, batch[2].square()}});
      };
    });
    ASSERT_TRUE(run.status.ok()) << run.status;
    const auto want = [&](const at::Tensor& weights) {
      return (2 * x * (y * weights).unsqueeze(1)).sum(0) / weights.sum();
    };
    EXPECT_TRUE(at::allclose(run.replicas[0].at("w"), want(w), 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(run.replicas[0].at("second.v"), want(w.square()), 1e-5, 1e-6));
  }
}

TEST(Weight, WhatDoesNotFitIsRefused) {
  const Sequences s = MakeSequences();
  const auto error_of = [&](int64_t accumulate,
                            std::function<void(TestProgram&, Step&, const data::Batch&)> body) {
    Job job = StepsJob(kBatch, 1);
    job.accumulate_steps = accumulate;
    const RunResult run = RunLocally(job, 1, [&](TestProgram& p) {
      Tokens(p, s);
      p.on_step = body;
    });
    EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
    return std::string(Message(run.status));
  };
  EXPECT_THAT(error_of(1,
                       [](TestProgram& self, Step& step, const data::Batch& batch) {
                         step.minimize(self.optimizers["sgd"],
                                       TokenLosses(self, batch[0], batch[1]), at::ones({kBatch}));
                       }),
              HasSubstr("the loss has shape [4, 5] and its weights have [4]: give one weight for "
                        "each value"));
  EXPECT_THAT(error_of(1,
                       [](TestProgram& self, Step& step, const data::Batch& batch) {
                         const at::Tensor losses = TokenLosses(self, batch[0], batch[1]);
                         step.minimize(self.optimizers["sgd"], losses, -at::ones_like(losses));
                       }),
              HasSubstr("sum to -20: they must be finite, and none below 0"));
  EXPECT_THAT(error_of(1,
                       [](TestProgram& self, Step& step, const data::Batch& batch) {
                         step.minimize(self.optimizers["sgd"],
                                       TokenLosses(self, batch[0], batch[1]));
                       }),
              HasSubstr("shape [4, 5]: do not reduce over the batch, and average over the other "
                        "dimensions or give weights"));
  EXPECT_THAT(error_of(2,
                       [](TestProgram& self, Step& step, const data::Batch& batch) {
                         const at::Tensor losses = TokenLosses(self, batch[0], batch[1]).sum(1);
                         step.add_loss(losses);
                         step.minimize(self.optimizers["sgd"], losses, at::ones_like(losses));
                       }),
              HasSubstr("add_loss was called for optimizer \"sgd\", whose loss has weights"));
}

// A metric that knows nothing of weights.
class Plain : public Metric {
 public:
  int width() const override { return 1; }
  at::Tensor Increment(const at::Tensor& output, const at::Tensor&) const override {
    return output.sum().reshape({1});
  }
  double Result(const std::vector<double>& sums) const override { return sums[0]; }
};

TEST(Weight, OfMetrics) {
  const at::Tensor w = at::tensor({1.f, 0.f, 3.f});
  const auto value = [&](const std::shared_ptr<const Metric>& metric, const at::Tensor& output,
                         const at::Tensor& target = {}) {
    const at::Tensor sums = metric->WeightedIncrement(output, target, w).to(at::kDouble);
    return metric->Result({sums.data_ptr<double>(), sums.data_ptr<double>() + sums.numel()});
  };
  const at::Tensor values = at::tensor({2.f, std::nanf(""), 4.f});
  const at::Tensor zeros = at::zeros({3});
  EXPECT_DOUBLE_EQ(value(MakeMean(), values), (2 + 12) / 4.0);
  EXPECT_DOUBLE_EQ(value(MakeSum(), values), 14);
  EXPECT_DOUBLE_EQ(value(MakeMeanSquaredError(), values, zeros), (4 + 48) / 4.0);
  EXPECT_DOUBLE_EQ(value(MakeRootMeanSquaredError(), values, zeros), std::sqrt(13));
  EXPECT_DOUBLE_EQ(value(MakeMeanAbsoluteError(), values, zeros), 14 / 4.0);
  const at::Tensor scores = at::tensor({1.f, 0.f, 0.f, 1.f, 1.f, 0.f}).reshape({3, 2});
  EXPECT_DOUBLE_EQ(value(MakeAccuracy(), scores, at::tensor({0, 0, 1})), 0.25);
  EXPECT_DOUBLE_EQ(value(MakeTopKAccuracy(1), scores, at::tensor({1, 0, 0})), 0.75);
  EXPECT_DOUBLE_EQ(value(MakeBinaryAccuracy(0.5), at::tensor({1.f, 1.f, 0.f}), at::ones({3})),
                   0.25);
  // One weight for all values of an example.
  EXPECT_DOUBLE_EQ(value(MakeMeanSquaredError(), scores, at::zeros({3, 2})), (1 + 3) / 8.0);
  EXPECT_THROW(value(MakeMean(), at::zeros({4})), c10::Error);
  try {
    value(std::make_shared<Plain>(), values);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("a metric got weights, which it does not "
                                                          "take"));
  }
}

}  // namespace
}  // namespace muster
