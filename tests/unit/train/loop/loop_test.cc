// Epochs, evaluation and program-owned loops.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <mutex>

#include "tests/unit/train/test_program.h"

namespace muster {
namespace {

using testing::Data;
using ::testing::HasSubstr;
using testing::LeastSquares;
using testing::RunLocally;
using testing::SquaredError;
using testing::TestProgram;

Data MakeData(int64_t n) {
  at::manual_seed(11);
  const at::Tensor x = at::randn({n, 2});
  return {x, at::matmul(x, at::tensor({1.f, -2.f})) + 0.5f};
}

Job EpochsJob(int64_t batch, int64_t epochs) {
  Job job;
  job.program = "test";
  job.global_batch_size = batch;
  job.epochs = epochs;
  return job;
}

void WithEvaluation(TestProgram& p, const Data& data) {
  LeastSquares(p, data.x, data.y);
  const auto build = p.on_build;
  p.on_build = [build, data](TestProgram& self, Builder& builder) {
    build(self, builder);
    builder.dataset(Split::kValidation,
                    testing::Tensors2(data.x.slice(0, 0, 5), data.y.slice(0, 0, 5)));
    builder.dataset(Split::kTest, testing::Tensors2(data.x.slice(0, 0, 7), data.y.slice(0, 0, 7)));
    self.metrics["mae"] = builder.metric("mae", MakeMeanAbsoluteError());
  };
  p.on_eval = [](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    const at::Tensor prediction = at::matmul(batch[0], (*self.model)["w"]) + (*self.model)["b"];
    evaluation.loss((prediction - batch[1]).square());
    evaluation.update(self.metrics["mae"], prediction, batch[1]);
  };
}

class LoopOverReplicas : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, LoopOverReplicas, ::testing::Values(1, 2, 3));

TEST_P(LoopOverReplicas, ValidatesEachEpochAndTestsAtTheEndCountingEachExampleOnce) {
  const Data data = MakeData(10);
  const auto one = RunLocally(EpochsJob(4, 3), 1, [&](TestProgram& p) { WithEvaluation(p, data); });
  const auto run =
      RunLocally(EpochsJob(4, 3), GetParam(), [&](TestProgram& p) { WithEvaluation(p, data); });
  ASSERT_TRUE(run.status.ok()) << run.status;
  std::vector<std::string> splits;
  for (const EpochReport& report : run.recorder.epochs) splits.push_back(report.split);
  EXPECT_EQ(splits, (std::vector<std::string>{"train", "validation", "train", "validation", "train",
                                              "validation", "test"}));
  EXPECT_EQ(run.recorder.Find("validation", 1)->examples, 5);
  EXPECT_EQ(run.recorder.Find("test", 2)->examples, 7);
  for (const EpochReport& report : run.recorder.epochs) {
    const EpochReport* want = one.recorder.Find(report.split, report.epoch);
    ASSERT_NE(want, nullptr);
    for (const auto& [name, value] : report.metrics)
      EXPECT_NEAR(value, want->metrics.at(name), 1e-5) << report.split << " " << name;
  }
  EXPECT_EQ(run.recorder.Find("train", 0)->examples, 10);
}

TEST_P(LoopOverReplicas, MaxStepsEndsWithinAnEpoch) {
  const Data data = MakeData(10);
  Job job = EpochsJob(4, 3);
  job.max_steps = 4;
  const auto run = RunLocally(job, GetParam(), [&](TestProgram& p) { WithEvaluation(p, data); });
  ASSERT_TRUE(run.status.ok());
  EXPECT_EQ(run.recorder.steps.size(), 4u);
  EXPECT_EQ(run.recorder.steps.back().epoch, 1);
  EXPECT_EQ(run.recorder.Find("train", 1)->examples, 4);
  EXPECT_NE(run.recorder.Find("validation", 1), nullptr);
  EXPECT_EQ(run.recorder.start.total_steps, 4);
}

TEST_P(LoopOverReplicas, TheShortLastBatchIsKeptOrDropped) {
  const Data data = MakeData(10);
  Job job = EpochsJob(4, 1);
  EXPECT_EQ(RunLocally(job, GetParam(), [&](TestProgram& p) { LeastSquares(p, data.x, data.y); })
                .recorder.steps.size(),
            3u);
  job.drop_remainder = true;
  EXPECT_EQ(RunLocally(job, GetParam(), [&](TestProgram& p) { LeastSquares(p, data.x, data.y); })
                .recorder.steps.size(),
            2u);
}

TEST_P(LoopOverReplicas, AProgramMayOwnItsLoop) {
  const Data data = MakeData(10);
  std::mutex mutex;
  std::vector<std::vector<double>> sums(GetParam()), gathered(GetParam());
  std::vector<size_t> local(GetParam());
  std::vector<std::map<std::string, double>> evaluated(GetParam());
  std::vector<int64_t> seen(GetParam());
  const auto run = RunLocally(EpochsJob(4, 2), GetParam(), [&](TestProgram& p) {
    WithEvaluation(p, data);
    p.on_run = [&](TestProgram& self, Loop& loop) {
      data::Batch batch;
      int replica = -1;
      while (loop.next(&batch)) {
        int64_t examples = 0;
        loop.step([&](Step& step, const data::Batch& part) {
          replica = step.replica();
          examples = part[0].size(0);
          step.minimize(self.optimizers["sgd"], SquaredError(self, part));
        });
        const at::Tensor count = at::full({1}, static_cast<double>(examples), at::kDouble);
        const double sum = loop.reduce_sum(count).item<double>();
        const double mean = loop.reduce_mean(count).item<double>();
        const at::Tensor all = loop.gather(batch[1]);  // slices of different lengths
        const auto values = loop.local_results(count);
        std::lock_guard<std::mutex> lock(mutex);
        EXPECT_DOUBLE_EQ(mean * GetParam(), sum);
        sums[replica].push_back(sum);
        gathered[replica].push_back(static_cast<double>(all.size(0)));
        EXPECT_TRUE(at::equal(all, data.y.slice(0, seen[replica], seen[replica] + all.size(0))));
        seen[replica] = (seen[replica] + all.size(0)) % 10;
        local[replica] = values.size();
      }
      auto metrics = loop.evaluate(Split::kTest);
      std::lock_guard<std::mutex> lock(mutex);
      evaluated[replica] = metrics;
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  const std::vector<double> want = {4, 4, 2, 4, 4, 2};
  for (int r = 0; r < GetParam(); ++r) {
    EXPECT_EQ(sums[r], want);
    EXPECT_EQ(gathered[r], want);
    EXPECT_EQ(local[r], static_cast<size_t>(GetParam()));
    EXPECT_EQ(evaluated[r], evaluated[0]) << "every replica gets the same numbers";
    EXPECT_EQ(evaluated[r].count("mae"), 1u);
  }
}

TEST_P(LoopOverReplicas, ReplicasThatDriftApartAreFoundAtTheEndOfTheEpoch) {
  const Data data = MakeData(8);
  const auto run = RunLocally(EpochsJob(4, 2), GetParam(), [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    const auto body = p.on_step;
    p.on_step = [body](TestProgram& self, Step& step, const data::Batch& batch) {
      body(self, step, batch);
      const double nudge = step.replica();
      step.on_commit([&self, nudge] { (*self.model)["w"].add_(nudge); });
    };
  });
  if (GetParam() == 1) {
    EXPECT_TRUE(run.status.ok());
  } else {
    EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
    EXPECT_THAT(std::string(Message(run.status)),
                HasSubstr("replicas hold different parameters after step 2"));
  }
}

TEST(Loop, PerReplicaBatchSizeIsTimesTheReplicas) {
  const Data data = MakeData(12);
  Job job = EpochsJob(1, 1);
  job.global_batch_size.reset();
  job.per_replica_batch_size = 2;
  const auto run = RunLocally(job, 3, [&](TestProgram& p) { LeastSquares(p, data.x, data.y); });
  EXPECT_EQ(run.recorder.start.global_batch_size, 6);
  EXPECT_EQ(run.recorder.steps.size(), 2u);
}

TEST(Loop, StepsPerEpochShortensAnEpoch) {
  const Data data = MakeData(12);
  Job job = EpochsJob(2, 2);
  job.steps_per_epoch = 3;
  const auto run = RunLocally(job, 1, [&](TestProgram& p) { LeastSquares(p, data.x, data.y); });
  EXPECT_EQ(run.recorder.steps.size(), 6u);
  EXPECT_EQ(run.recorder.start.steps_per_epoch, 3);
}

TEST(Loop, OneExceptionWakesTheReplicasThatWaitInLocalResults) {
  const Data data = MakeData(12);
  const auto run = RunLocally(EpochsJob(3, 1), 3, [&](TestProgram& p) {
    LeastSquares(p, data.x, data.y);
    p.on_run = [](TestProgram& self, Loop& loop) {
      data::Batch batch;
      int replica = -1;
      loop.next(&batch);
      loop.step([&](Step& step, const data::Batch& part) {
        replica = step.replica();
        step.minimize(self.optimizers["sgd"], SquaredError(self, part));
      });
      if (replica == 2) throw std::runtime_error("left early");
      loop.local_results(at::zeros({1}));
    };
  });
  EXPECT_EQ(Message(run.status), "run failed: left early");
}

}  // namespace
}  // namespace muster
