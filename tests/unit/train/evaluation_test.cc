// Passes over validation and test data: each example once, the same numbers however many replicas
// make them, by the loop or by the evaluator; and what programs show.
#include "common/train/evaluation.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <atomic>

#include "common/train/state/checkpoint_evaluator.h"
#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using testing::Data;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::KeptCheckpoints;
using testing::LeastSquares;
using testing::RunOptions;
using testing::TestProgram;

Data MakeData() {
  at::manual_seed(3);
  const at::Tensor x = at::randn({13, 2});
  return {x, at::matmul(x, at::tensor({1.f, -2.f})) + 0.5f};
}

// 13 examples in batches of 5: the last has 3, and of three replicas' slices some differ in length.
// The validation split has `validation` of them; counts how often each is evaluated.
void Fill(TestProgram& p, const Data& data, int64_t validation,
          std::array<std::atomic<int>, 13>* seen) {
  LeastSquares(p, data.x, data.y);
  const auto build = p.on_build;
  p.on_build = [=](TestProgram& self, Builder& builder) {
    build(self, builder);
    const at::Tensor index = at::arange(validation);
    builder.dataset(Split::kValidation, [=] {
      return data::FromTensors(
          {data.x.slice(0, 0, validation), data.y.slice(0, 0, validation), index});
    });
    self.metrics["mae"] = builder.metric("mae", MakeMeanAbsoluteError());
    self.metrics["near"] = builder.metric("near", MakeMean());
  };
  p.on_eval = [seen](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    const at::Tensor prediction = at::matmul(batch[0], (*self.model)["w"]) + (*self.model)["b"];
    evaluation.loss((prediction - batch[1]).square());
    evaluation.update(self.metrics["mae"], prediction, batch[1]);
    evaluation.update(self.metrics["near"], (prediction - batch[1]).abs().lt(1).to(at::kFloat));
    if (seen == nullptr) return;
    for (int64_t i = 0; i < batch[2].numel(); ++i) ++(*seen)[batch[2][i].item<int64_t>()];
  };
}

RunOptions Options(int replicas, CheckpointSink* sink) {
  RunOptions options;
  options.job.program = "test";
  options.job.global_batch_size = 5;
  options.job.epochs = 1;
  options.devices.assign(replicas, c10::Device(at::kCPU));
  options.checkpoints = sink;
  return options;
}

absl::StatusOr<std::unique_ptr<CheckpointEvaluator>> MakeEvaluator(
    const Job& job, int replicas, std::function<void(TestProgram&)> set_up) {
  CheckpointEvaluatorOptions options;
  options.job = job;
  options.devices.assign(replicas, c10::Device(at::kCPU));
  options.factory = [set_up] {
    auto program = std::make_unique<TestProgram>();
    set_up(*program);
    return program;
  };
  return CheckpointEvaluator::Make(std::move(options));
}

class Passes : public ::testing::TestWithParam<std::tuple<int, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Passes,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1, 2, 6, 13)));

TEST_P(Passes, GiveTheSameNumbersByTheLoopAndByTheEvaluator) {
  const auto [replicas, validation] = GetParam();
  const Data data = MakeData();
  KeptCheckpoints one_kept, kept;
  const auto one =
      testing::Run(Options(1, &one_kept), [&](TestProgram& p) { Fill(p, data, validation, {}); });
  std::array<std::atomic<int>, 13> seen = {}, seen_again = {};
  const RunOptions options = Options(replicas, &kept);
  const auto run = testing::Run(options, [&](TestProgram& p) { Fill(p, data, validation, &seen); });
  ASSERT_TRUE(run.status.ok()) << run.status;
  const EpochReport* want = one.recorder.Find("validation", 0);
  const EpochReport* got = run.recorder.Find("validation", 0);
  ASSERT_TRUE(want != nullptr && got != nullptr);
  EXPECT_EQ(got->examples, validation);
  for (int64_t i = 0; i < 13; ++i) EXPECT_EQ(seen[i], i < validation ? 1 : 0) << "example " << i;
  for (const auto& [name, value] : want->metrics) EXPECT_NEAR(got->metrics.at(name), value, 1e-6);
  EXPECT_EQ(got->metrics.at("near"), want->metrics.at("near")) << "a count is exact";

  const auto evaluator = MakeEvaluator(
      options.job, replicas, [&](TestProgram& p) { Fill(p, data, validation, &seen_again); });
  ASSERT_TRUE(evaluator.ok()) << evaluator.status();
  EXPECT_EQ((*evaluator)->split(), Split::kValidation);
  EXPECT_EQ((*evaluator)->examples(), validation);
  std::vector<int64_t> progress;
  CheckpointEvaluator::Hooks hooks;
  hooks.progress = [&](int64_t done, int64_t) { progress.push_back(done); };
  const auto evaluation = (*evaluator)->Evaluate(kept.kept.back(), hooks);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_EQ(evaluation->step, 3);
  EXPECT_EQ(evaluation->examples, validation);
  EXPECT_EQ(evaluation->metrics, got->metrics) << "the same replicas on the same parameters";
  EXPECT_EQ(progress.size(), static_cast<size_t>((validation + 4) / 5));
  for (int64_t i = 0; i < 13; ++i) EXPECT_EQ(seen_again[i], i < validation ? 1 : 0);
}

// Not a loss of 0, which would be the best one for ever.
TEST_P(Passes, WithoutALossHaveNone) {
  for (const bool weighted : {false, true}) {
    const Data data = MakeData();
    const auto run = testing::Run(Options(std::get<0>(GetParam()), nullptr), [&](TestProgram& p) {
      Fill(p, data, 4, nullptr);
      p.on_eval = [=](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
        evaluation.update(self.metrics["near"], batch[1]);
        if (weighted) evaluation.loss(batch[1], at::zeros_like(batch[1]));
      };
    });
    ASSERT_TRUE(run.status.ok()) << run.status;
    const EpochReport* pass = run.recorder.Find("validation", 0);
    ASSERT_NE(pass, nullptr);
    EXPECT_FALSE(pass->metrics.contains("loss"));
    EXPECT_TRUE(pass->metrics.contains("near"));
  }
}

TEST(CheckpointEvaluator, TakesTheTestSplitWhereThereIsNoValidationAndNeedsOneOfThem) {
  const Data data = MakeData();
  const auto with = [&](std::optional<Split> split) {
    return MakeEvaluator(Options(1, nullptr).job, 1, [&, split](TestProgram& p) {
      LeastSquares(p, data.x, data.y);
      const auto build = p.on_build;
      p.on_build = [=](TestProgram& self, Builder& builder) {
        build(self, builder);
        if (split) builder.dataset(*split, testing::Tensors2(data.x, data.y));
      };
    });
  };
  EXPECT_EQ((*with(Split::kTest))->split(), Split::kTest);
  const auto none = with(std::nullopt);
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(std::string(Message(none.status())), HasSubstr("nothing to evaluate"));
}

TEST(CheckpointEvaluator, TakesTheSplitThatIsAskedFor) {
  const Data data = MakeData();
  const auto with = [&](Split split) {
    CheckpointEvaluatorOptions options;
    options.job = Options(1, nullptr).job;
    options.devices = {c10::Device(at::kCPU)};
    options.split = split;
    options.factory = [&] {
      auto program = std::make_unique<TestProgram>();
      Fill(*program, data, 13, nullptr);
      return program;
    };
    return CheckpointEvaluator::Make(std::move(options));
  };
  EXPECT_EQ((*with(Split::kTrain))->split(), Split::kTrain);
  EXPECT_EQ((*with(Split::kValidation))->split(), Split::kValidation);
  const auto none = with(Split::kTest);
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(std::string(Message(none.status())), HasSubstr("no test dataset"));
  EXPECT_THAT(std::string(Message(none.status())), HasSubstr("train, validation"));
}

TEST(PassBatchSize, IsAMicroBatchOrWhatTheJobSays) {
  Job job;
  EXPECT_EQ(PassBatchSize(job, 100, 4), 100);
  job.accumulate_steps = 3;
  EXPECT_EQ(PassBatchSize(job, 100, 4), 4 * 9);
  EXPECT_EQ(PassBatchSize(job, 100, 1), 34);
  EXPECT_EQ(PassBatchSize(job, 2, 4), 2) << "never more than the batch";
  job.evaluate.batch_size = 7;
  EXPECT_EQ(PassBatchSize(job, 100, 4), 28);
  EXPECT_EQ(BatchSizeAfterTraining(job, 100, 2), 14);
  job.evaluate.batch_size.reset();
  job.accumulate_steps = 1;
  EXPECT_EQ(BatchSizeAfterTraining(job, 100, 2), 100);
  EXPECT_EQ(BatchSizeAfterTraining(job, 0, 2), 32) << "weights that others wrote";
  job.per_replica_batch_size = 8;
  EXPECT_EQ(BatchSizeAfterTraining(job, 100, 2), 16);
}

TEST(CheckpointEvaluator, IsCancelledFailsAndGoesOn) {
  const Data data = MakeData();
  KeptCheckpoints kept;
  ASSERT_TRUE(
      testing::Run(Options(1, &kept), [&](TestProgram& p) { Fill(p, data, 13, {}); }).status.ok());
  for (const int replicas : {1, 3}) {
    std::atomic<bool> fail = false;
    const auto evaluator = MakeEvaluator(Options(1, nullptr).job, replicas, [&](TestProgram& p) {
      Fill(p, data, 13, {});
      const auto eval = p.on_eval;
      p.on_eval = [&, eval](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
        eval(self, evaluation, batch);
        // One replica's slice alone.
        if (fail && batch[0].size(0) > 0 && batch[2][0].item<int64_t>() == 0)
          throw std::runtime_error("cannot");
      };
    });
    ASSERT_TRUE(evaluator.ok());
    std::atomic<bool> cancelled = false;
    int64_t batches = 0;
    CheckpointEvaluator::Hooks hooks;
    hooks.cancelled = [&] { return cancelled.load(); };
    hooks.progress = [&](int64_t done, int64_t) { cancelled = (batches = done) == 1; };
    EXPECT_EQ(ExitCodeOf((*evaluator)->Evaluate(kept.kept.back(), hooks).status()),
              ExitCode::kPreempted);
    EXPECT_LT(batches, 3);
    hooks.progress = nullptr;
    cancelled = false;
    fail = true;
    const absl::Status failed = (*evaluator)->Evaluate(kept.kept.back(), hooks).status();
    EXPECT_EQ(failed, ProgramError("eval_step failed: cannot"));
    fail = false;
    const auto evaluation = (*evaluator)->Evaluate(kept.kept.back(), hooks);
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    EXPECT_EQ(evaluation->examples, 13);
  }
}

// ---- What programs show

TEST(Shown, ImagesAndHistogramsOfEveryNthStepFromOneReplica) {
  const Data data = MakeData();
  RunOptions options = Options(2, nullptr);
  options.job.epochs = 2;
  options.job.summary.every_steps = 3;
  options.job.summary.histograms_every_epochs = 2;
  std::atomic<int> wanted = 0;
  const auto run = testing::Run(options, [&](TestProgram& p) {
    Fill(p, data, 13, {});
    const auto body = p.on_step;
    p.on_step = [&, body](TestProgram& self, Step& step, const data::Batch& batch) {
      wanted += step.wants_summary() ? 1 : 0;
      // Row r of the batch is a picture of 2 x 1 with the values 0.2 and 2 (above the range).
      const at::Tensor images =
          at::tensor({0.2f, 2.f}).reshape({1, 1, 2, 1}).expand({batch[0].size(0), 1, 2, 1});
      step.image("digits", images);
      step.histogram("targets", at::tensor({1.f, NAN, 3.f, INFINITY}));
      body(self, step, batch);
    };
    const auto eval = p.on_eval;
    p.on_eval = [eval](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
      eval(self, evaluation, batch);
      evaluation.image("inputs", at::full({batch[0].size(0), 3, 1, 1}, 7, at::kByte));
    };
  });
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(wanted, 2) << "steps 3 and 6, one of two replicas";
  const auto& images = run.recorder.images;
  ASSERT_EQ(images.size(), 4u) << "two steps, two validation passes";
  EXPECT_EQ(images[0].first, "train");
  EXPECT_EQ(images[0].second.tag, "digits");
  EXPECT_EQ(images[0].second.step, 3);
  EXPECT_EQ(images[0].second.count, 2) << "the short last batch of 3 leaves this replica 2";
  EXPECT_EQ(images[0].second.height, 2);
  EXPECT_EQ(images[0].second.channels, 1);
  EXPECT_THAT(images[0].second.pixels, ElementsAre(51, 255, 51, 255));
  EXPECT_EQ(images[1].first, "validation");
  EXPECT_EQ(images[1].second.count, 3) << "of 13";
  EXPECT_EQ(images[1].second.pixels.size(), 9u);
  EXPECT_EQ(images[1].second.pixels[0], 7);

  const auto& histograms = run.recorder.histograms;
  ASSERT_EQ(histograms.size(), 4u) << "the program's two, and two parameters after epoch 2";
  EXPECT_EQ(histograms[0].second.tag, "targets");
  EXPECT_EQ(histograms[0].second.distribution.count, 2);
  EXPECT_EQ(histograms[0].second.distribution.sum, 4);
  EXPECT_EQ(histograms[0].second.distribution.not_finite, 2);
  EXPECT_EQ(histograms[2].second.tag, "parameters/w");
  EXPECT_EQ(histograms[2].second.step, 6);
  EXPECT_EQ(histograms[2].second.distribution.count, 2);
  EXPECT_EQ(histograms[3].second.tag, "parameters/b");
}

TEST(Shown, AWrongImageIsRefusedInTheFirstStep) {
  const Data data = MakeData();
  const auto refusal = [&](const at::Tensor& images) {
    const auto run = testing::Run(Options(1, nullptr), [&](TestProgram& p) {
      LeastSquares(p, data.x, data.y);
      p.on_step = [&](TestProgram&, Step& step, const data::Batch&) {
        step.image("inputs", images);
      };
    });
    EXPECT_EQ(ExitCodeOf(run.status), ExitCode::kProgramFailed);
    return std::string(Message(run.status));
  };
  EXPECT_EQ(refusal(at::zeros({5, 2, 8, 8})),
            "image(\"inputs\") needs shape [batch, channels, height, width] with 1, 3 or 4 "
            "channels, got [5, 2, 8, 8]");
  EXPECT_THAT(refusal(at::zeros({5, 1, 8, 8}, at::kLong)), HasSubstr("or bytes"));
}

}  // namespace
}  // namespace muster
