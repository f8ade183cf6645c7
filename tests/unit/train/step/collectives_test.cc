// all_reduce and all_gather in a step, and SyncBatchNorm.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include "muster/sync_batch_norm.h"
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

constexpr int64_t kExamples = 10, kFeatures = 3;

using Body = std::function<void(TestProgram&, Step&, const data::Batch&)>;

void Features(TestProgram& p, const Body& body) {
  p.on_build = [](TestProgram& self, Builder& builder) {
    at::manual_seed(1);
    const at::Tensor x = at::randn({kExamples, kFeatures}), y = at::randn({kExamples});
    self.model->parameter("w", at::randn({kFeatures, kFeatures}));
    self.model->parameter("v", at::randn({kFeatures}));
    builder.model("net", self.model);
    self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.1);
    builder.dataset(Split::kTrain, Tensors2(x, y));
  };
  p.on_step = body;
}

at::Tensor Embedded(TestProgram& self, const data::Batch& batch) {
  return at::matmul(batch[0], (*self.model)["w"]).tanh();
}

void ExpectSame(const RunResult& got, const RunResult& want) {
  ASSERT_TRUE(got.status.ok()) << got.status;
  ASSERT_TRUE(want.status.ok()) << want.status;
  for (const auto& replica : got.replicas)
    for (const auto& [name, value] : replica)
      EXPECT_TRUE(at::allclose(value, want.replicas[0].at(name), 1e-5, 2e-6)) << name;
  for (size_t step = 0; step < want.recorder.steps.size(); ++step)
    EXPECT_NEAR(got.recorder.steps[step].loss, want.recorder.steps[step].loss, 5e-6);
}

class Collectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, Collectives, ::testing::Values(1, 2, 3, 4));

// Each example is compared with the mean of the whole batch.
TEST_P(Collectives, AllReduceHasTheGradientOfTheWholeBatch) {
  const Body body = [](TestProgram& self, Step& step, const data::Batch& batch) {
    const at::Tensor h = Embedded(self, batch);
    const at::Tensor sums =
        step.all_reduce(at::cat({h.sum(0), at::full({1}, h.size(0), h.options())}));
    const at::Tensor mean = sums.narrow(0, 0, kFeatures) / sums[kFeatures];
    step.minimize(self.optimizers["sgd"],
                  at::matmul(h - mean, (*self.model)["v"]).square() + batch[1] * h.select(1, 0));
  };
  // 10 examples in batches of 4: the last has 2, fewer than 3 replicas.
  for (const int64_t accumulate : {1, 2}) {
    Job job = StepsJob(4, 6);
    if (accumulate > 1) job.global_batch_size = 2 * GetParam() * accumulate;
    job.accumulate_steps = accumulate;
    const auto set_up = [&](TestProgram& p) { Features(p, body); };
    const RunResult run = RunLocally(job, GetParam(), set_up);
    ASSERT_TRUE(run.status.ok()) << run.status;
    if (accumulate == 1) ExpectSame(run, RunLocally(job, 1, set_up));
    for (const auto& replica : run.replicas)
      EXPECT_TRUE(at::equal(replica.at("w"), run.replicas[0].at("w")));
  }
}

// A contrastive loss: each example against all others of the global batch.
TEST_P(Collectives, AllGatherHasTheGradientOfTheWholeBatch) {
  const Body body = [](TestProgram& self, Step& step, const data::Batch& batch) {
    const at::Tensor h = Embedded(self, batch);
    const at::Tensor all = step.all_gather(h);
    EXPECT_EQ(all.requires_grad(), true);
    const at::Tensor scores = at::matmul(h * (*self.model)["v"], all.t());
    step.minimize(self.optimizers["sgd"], scores.logsumexp(1) - (h * h).sum(1));
  };
  const auto set_up = [&](TestProgram& p) { Features(p, body); };
  ExpectSame(RunLocally(StepsJob(4, 6), GetParam(), set_up), RunLocally(StepsJob(4, 6), 1, set_up));
}

TEST_P(Collectives, ValuesAreThoseOfAllReplicas) {
  const Body body = [](TestProgram& self, Step& step, const data::Batch& batch) {
    const int n = step.num_replicas();
    const at::Tensor own = at::full({2}, step.replica() + 1, at::kDouble);
    EXPECT_EQ(step.all_reduce(own)[1].item<double>(), n * (n + 1) / 2);
    EXPECT_EQ(step.all_reduce(own, ReduceOp::kMean)[0].item<double>(), (n + 1) / 2.0);
    EXPECT_EQ(step.all_reduce(own, ReduceOp::kMax)[0].item<double>(), n);
    // Replica r gives r rows of r: the first one none.
    const at::Tensor rows = at::full({step.replica(), 2}, step.replica(), at::kLong);
    const at::Tensor all = step.all_gather(rows);
    ASSERT_EQ(all.size(0), n * (n - 1) / 2);
    int64_t at = 0;
    for (int r = 0; r < n; ++r)
      for (int i = 0; i < r; ++i) EXPECT_EQ(all[at++][1].item<int64_t>(), r);
    EXPECT_EQ(step.all_gather(at::full({}, 7.f)).numel(), n);
    EXPECT_EQ(step.all_gather(at::zeros({0, 3})).size(0), 0);
    step.minimize(self.optimizers["sgd"], at::matmul(Embedded(self, batch), (*self.model)["v"]));
  };
  const RunResult run =
      RunLocally(StepsJob(4, 3), GetParam(), [&](TestProgram& p) { Features(p, body); });
  EXPECT_TRUE(run.status.ok()) << run.status;
}

// Buckets of a few bytes, which would leave while the backward pass runs; and a replica whose loss
// does not depend on what was gathered.
TEST_P(Collectives, OrderIsTheSameWhereLossesDependOnOtherThings) {
  const Body body = [](TestProgram& self, Step& step, const data::Batch& batch) {
    const at::Tensor h = Embedded(self, batch);
    const at::Tensor first = step.all_reduce(h.sum(0));
    const at::Tensor second = step.all_gather(at::matmul(h, (*self.model)["w"]));
    at::Tensor loss = at::matmul(h, (*self.model)["v"]);
    if (step.replica() == 0) loss = loss + (first * (*self.model)["v"]).sum();
    if (step.replica() == step.num_replicas() - 1) loss = loss + second.square().sum() * 0.01;
    step.minimize(self.optimizers["sgd"], loss);
  };
  Job job = StepsJob(5, 6);
  job.collective.bucket_bytes = job.collective.first_bucket_bytes = 4;
  const RunResult run = RunLocally(job, GetParam(), [&](TestProgram& p) { Features(p, body); });
  ASSERT_TRUE(run.status.ok()) << run.status;
  for (const auto& replica : run.replicas)
    EXPECT_TRUE(at::equal(replica.at("w"), run.replicas[0].at("w")));
}

TEST(Collective, DifferentCallsOfReplicasAreReported) {
  const Body body = [](TestProgram& self, Step& step, const data::Batch& batch) {
    if (step.replica() == 1) step.all_reduce(at::ones({3}));
    step.minimize(self.optimizers["sgd"], at::matmul(Embedded(self, batch), (*self.model)["v"]));
  };
  const RunResult run = RunLocally(StepsJob(4, 3), 2, [&](TestProgram& p) { Features(p, body); });
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
  EXPECT_THAT(std::string(Message(run.status)), HasSubstr("The ranks disagree on collective"));
}

// ---- SyncBatchNorm

// Images [batch, 2, 3, 3] through a layer and a batch norm.
void Images(TestProgram& p, bool synchronous, std::vector<int64_t> shape, int64_t examples) {
  p.on_build = [=](TestProgram& self, Builder& builder) {
    at::manual_seed(4);
    std::vector<int64_t> all = shape;
    all.insert(all.begin(), examples);
    const at::Tensor x = at::randn(all) * 3 + 4;
    const at::Tensor y = at::randn({examples});
    self.model->parameter("scale", at::full({1}, 1.5));
    self.second = std::make_shared<testing::Tensors>();
    SyncBatchNorm norm{SyncBatchNormOptions(shape[0])};
    self.model->register_module("norm", norm.ptr());
    builder.model("net", self.model);
    self.optimizers["sgd"] = builder.optimizer("sgd", {"net"}, "sgd", 0.05);
    builder.dataset(Split::kTrain, Tensors2(x, y));
    builder.dataset(Split::kValidation, Tensors2(x, y));
  };
  const auto forward = [synchronous](TestProgram& self, const at::Tensor& x) {
    auto norm = std::dynamic_pointer_cast<SyncBatchNormImpl>(self.model->children()[0]);
    const at::Tensor h = x * (*self.model)["scale"];
    if (synchronous) return norm->forward(h).flatten(1).sin().sum(1);
    return at::batch_norm(h, norm->weight, norm->bias, norm->running_mean, norm->running_var,
                          norm->is_training(), 0.1, 1e-5, false)
        .flatten(1)
        .sin()
        .sum(1);
  };
  p.on_step = [forward](TestProgram& self, Step& step, const data::Batch& batch) {
    step.minimize(self.optimizers["sgd"], (forward(self, batch[0]) - batch[1]).square());
  };
  p.on_eval = [forward](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    evaluation.loss((forward(self, batch[0]) - batch[1]).square());
  };
}

TEST_P(Collectives, SyncBatchNormEqualsBatchNormOverTheGlobalBatch) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2, 3, 3}, std::vector<int64_t>{5}}) {
    // The last batch has 3 examples: an empty slice on one of four replicas.
    const auto sync = [&](TestProgram& p) { Images(p, true, shape, 11); };
    const auto whole = [&](TestProgram& p) { Images(p, false, shape, 11); };
    const RunResult got = RunLocally(StepsJob(8, 6), GetParam(), sync);
    const RunResult want = RunLocally(StepsJob(8, 6), 1, whole);
    ASSERT_TRUE(got.status.ok()) << got.status;
    ASSERT_TRUE(want.status.ok()) << want.status;
    for (const auto& [name, value] : want.replicas[0]) {
      if (name == "norm.num_batches_tracked") continue;
      EXPECT_TRUE(at::allclose(got.replicas[0].at(name), value, 2e-4, 2e-4))
          << name << "\n"
          << got.replicas[0].at(name) << "\n"
          << value;
    }
    EXPECT_EQ(got.replicas[0].at("norm.num_batches_tracked").item<int64_t>(), 6);
    for (size_t step = 0; step < 6; ++step)
      EXPECT_NEAR(got.recorder.steps[step].loss, want.recorder.steps[step].loss,
                  2e-4 * std::abs(want.recorder.steps[step].loss));
    EXPECT_NEAR(got.recorder.Find("validation", 0)->metrics.at("loss"),
                want.recorder.Find("validation", 0)->metrics.at("loss"),
                2e-4 * std::abs(want.recorder.Find("validation", 0)->metrics.at("loss")));
  }
}

TEST_P(Collectives, SyncBatchNormRefusesOneValueInAll) {
  const RunResult run =
      RunLocally(StepsJob(1, 2), GetParam(), [](TestProgram& p) { Images(p, true, {5}, 3); });
  EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
  EXPECT_THAT(std::string(Message(run.status)),
              HasSubstr("SyncBatchNorm got one value for each channel from all replicas together, "
                        "which has no variance"));
}

TEST(Collective, SyncBatchNormInTrainingModeIsForSteps) {
  SyncBatchNorm norm{SyncBatchNormOptions(2)};
  try {
    norm->forward(at::zeros({3, 2}));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("is for train_step"));
  }
  norm->eval();
  EXPECT_TRUE(at::allclose(norm->forward(at::ones({3, 2})), at::ones({3, 2}), 1e-4));
}

}  // namespace
}  // namespace muster
