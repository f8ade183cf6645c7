// A run that is stopped, saved and continued is the uninterrupted one: to the bit with as many
// replicas, to rounding with others.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using testing::Data;
using testing::KeptCheckpoints;
using testing::RunOptions;
using testing::RunResult;
using testing::TestProgram;

// 22 examples in batches of 4: six steps an epoch, the last batch of 2 leaves one of 3 replicas
// without an example.
constexpr int64_t kExamples = 22, kBatch = 4, kEpochs = 3, kSteps = 18;

const Data& TheData() {
  static const Data data = [] {
    at::manual_seed(5);
    const at::Tensor x = at::randn({kExamples, 3});
    return Data{x, at::matmul(x, at::tensor({1.f, -2.f, 0.5f})) + 0.3f + 0.1 * at::randn({22})};
  }();
  return data;
}

struct Case {
  std::string name;
  std::function<void(TestProgram&)> set_up;
  std::function<void(Job&)> job;
  double tolerance = 1e-5;     // with another number of replicas
  bool other_replicas = true;  // whether that is the same run at all
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

at::Tensor Predict(TestProgram& self, const at::Tensor& x) {
  return at::matmul(x, (*self.model)["w"]) + (*self.model)["b"];
}

void Declare(TestProgram& self, Builder& builder) {
  const Data& data = TheData();
  builder.dataset(Split::kTrain, [&data]() -> absl::StatusOr<data::DatasetPtr> {
    auto examples = data::FromTensors({data.x, data.y});
    if (!examples.ok()) return examples.status();
    return data::Shuffle(*examples);
  });
  builder.dataset(Split::kValidation,
                  testing::Tensors2(data.x.slice(0, 0, 9), data.y.slice(0, 0, 9)));
  builder.dataset(Split::kTest, testing::Tensors2(data.x.slice(0, 5, 18), data.y.slice(0, 5, 18)));
  self.metrics["mae"] = builder.metric("mae", MakeMeanAbsoluteError());
}

void Fitted(TestProgram& p, Json optimizer) {
  p.on_build = [optimizer](TestProgram& self, Builder& builder) {
    self.model->parameter("w", at::zeros({3}));
    self.model->parameter("b", at::zeros({}));
    builder.model("net", self.model);
    self.optimizers["it"] = builder.optimizer("it", {"net"}, optimizer, 0.05);
    Declare(self, builder);
  };
  p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    const at::Tensor prediction = Predict(self, batch[0]);
    step.minimize(self.optimizers["it"], (prediction - batch[1]).to(at::kFloat).square());
    step.update(self.metrics["mae"], prediction.to(at::kFloat), batch[1]);
    step.report("prediction", prediction.detach().to(at::kFloat));
  };
  p.on_eval = [](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    const at::Tensor prediction = Predict(self, batch[0]).to(at::kFloat);
    evaluation.loss((prediction - batch[1]).square());
    evaluation.update(self.metrics["mae"], prediction, batch[1]);
  };
}

// Running statistics (a float buffer, averaged over replicas) and a counter (an integer one).
void Normalised(TestProgram& p) {
  Fitted(p, {{"name", "adam"}});
  const auto build = p.on_build;
  p.on_build = [build](TestProgram& self, Builder& builder) {
    self.model->buffer("mean", at::zeros({3}));
    self.model->buffer("batches", at::zeros({}, at::kLong));
    build(self, builder);
  };
  p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    at::Tensor mean = (*self.model)["mean"], batches = (*self.model)["batches"];
    const at::Tensor prediction = Predict(self, batch[0] - mean);
    if (batch[0].size(0) > 0) mean.mul_(0.9).add_(batch[0].mean(0), 0.1);
    batches.add_(1);
    step.minimize(self.optimizers["it"], (prediction - batch[1]).square());
    step.update(self.metrics["mae"], prediction, batch[1]);
  };
}

// Two models, two optimizers, two updates a step, the second of which sees the first.
void Adversaries(TestProgram& p) {
  p.on_build = [](TestProgram& self, Builder& builder) {
    self.model->parameter("w", at::zeros({3}));
    self.model->parameter("b", at::zeros({}));
    auto second = std::make_shared<testing::Tensors>();
    second->parameter("scale", at::ones({}));
    builder.model("first", self.model);
    builder.model("second", second);
    self.second = second;
    self.optimizers["one"] =
        builder.optimizer("one", {"first"}, {{"name", "sgd"}, {"momentum", 0.9}}, 0.02);
    self.optimizers["two"] = builder.optimizer("two", {"second"}, {{"name", "adam"}}, 0.01);
    Declare(self, builder);
  };
  p.on_step = [](TestProgram& self, Step& step, const data::Batch& batch) {
    const auto loss = [&] {
      return (Predict(self, batch[0]) * (*self.second)["scale"] - batch[1]).square();
    };
    step.minimize(self.optimizers["one"], loss());
    step.minimize(self.optimizers["two"], loss());
    step.update(self.metrics["mae"], Predict(self, batch[0]), batch[1]);
  };
  p.on_eval = [](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    evaluation.loss((Predict(self, batch[0]) * (*self.second)["scale"] - batch[1]).square());
    evaluation.update(self.metrics["mae"], Predict(self, batch[0]), batch[1]);
  };
}

// Rows of two tables besides the model: keys that come several times in a batch, and some that come
// late.
void Embedded(TestProgram& p) {
  Fitted(p, {{"name", "adam"}});
  const auto build = p.on_build;
  p.on_build = [build](TestProgram& self, Builder& builder) {
    build(self, builder);
    EmbeddingOptions options;
    options.width = 3;
    options.optimizer = {{"name", "rmsprop"}, {"momentum", 0.5}};
    options.learning_rate = 0.02;
    self.embeddings["slopes"] = builder.embedding("slopes", options);
    options.width = 1;
    options.optimizer = "adam";
    self.embeddings["offsets"] = builder.embedding("offsets", options);
  };
  const auto predict = [](TestProgram& self, auto& step, const at::Tensor& x) {
    const at::Tensor keys = (x.select(1, 0) * 2).floor().to(at::kLong);
    return (step.lookup(self.embeddings["slopes"], keys) * x).sum(1) +
           step.lookup(self.embeddings["offsets"], keys + 100).squeeze(1) + Predict(self, x);
  };
  p.on_step = [predict](TestProgram& self, Step& step, const data::Batch& batch) {
    const at::Tensor prediction = predict(self, step, batch[0]);
    step.minimize(self.optimizers["it"], (prediction - batch[1]).square());
    step.update(self.metrics["mae"], prediction, batch[1]);
  };
  p.on_eval = [predict](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
    const at::Tensor prediction = predict(self, evaluation, batch[0]);
    evaluation.loss((prediction - batch[1]).square());
    evaluation.update(self.metrics["mae"], prediction, batch[1]);
  };
}

std::vector<Case> Cases() {
  const auto with = [](Json optimizer) {
    return [optimizer](TestProgram& p) { Fitted(p, optimizer); };
  };
  return {
      {"Momentum", with({{"name", "sgd"}, {"momentum", 0.9}}), nullptr},
      {"AdamCosine", with({{"name", "adam"}, {"amsgrad", true}}),
       [](Job& job) {
         job.learning_rate = {{"name", "cosine"}, {"initial", 0.05}};
       }},
      {"Buffers", Normalised, nullptr},
      {"TwoOptimizers", Adversaries, nullptr},
      {"Tables", Embedded, nullptr},
      {"Accumulation", with({{"name", "adam"}}), [](Job& job) { job.accumulate_steps = 2; }},
      // The scale starts above what half precision holds, so that the first steps overflow and
      // halve it: how many do depends on how the batch is divided.
      {"Float16", with("sgd"), [](Job& job) { job.precision = Precision::kFloat16; }, 0, false},
  };
}

Job CaseJob(const Case& c) {
  Job job;
  job.program = "test";
  job.global_batch_size = kBatch;
  job.epochs = kEpochs;
  if (c.job) c.job(job);
  return job;
}

// Where a run is stopped: after step `step`, or within the pass that follows it.
struct Cut {
  int64_t step;
  std::string within;
};
void PrintTo(const Cut& cut, std::ostream* out) { *out << cut.step << cut.within; }

RunOptions CaseOptions(const Case& c, int replicas, KeptCheckpoints* kept) {
  RunOptions options;
  options.job = CaseJob(c);
  options.devices.assign(replicas, c10::Device(at::kCPU));
  options.checkpoints = kept;
  return options;
}

void ExpectSameTensors(const checkpoint::TensorSet& got, const checkpoint::TensorSet& want,
                       double tolerance) {
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    const auto &a = got.tensors[i], &b = want.tensors[i];
    ASSERT_EQ(a.name, b.name);
    ASSERT_EQ(a.dtype, b.dtype);
    ASSERT_EQ(a.shape, b.shape);
    if (tolerance == 0 || a.dtype != checkpoint::DType::kFloat32) {
      EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0) << a.name;
      continue;
    }
    for (int64_t e = 0; e < a.elements(); ++e) {
      EXPECT_NEAR(reinterpret_cast<const float*>(a.data)[e],
                  reinterpret_cast<const float*>(b.data)[e], tolerance)
          << a.name;
    }
  }
}

void ExpectSameRun(const RunResult& first, const RunResult& second, const RunResult& whole,
                   double tolerance) {
  std::vector<double> losses = first.recorder.losses();
  for (double loss : second.recorder.losses()) losses.push_back(loss);
  const std::vector<double> want = whole.recorder.losses();
  ASSERT_EQ(losses.size(), want.size()) << "each step once";
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(losses[i], want[i], tolerance) << "step " << i + 1;
  std::vector<EpochReport> epochs = first.recorder.epochs;
  epochs.insert(epochs.end(), second.recorder.epochs.begin(), second.recorder.epochs.end());
  ASSERT_EQ(epochs.size(), whole.recorder.epochs.size()) << "each pass once";
  for (size_t i = 0; i < epochs.size(); ++i) {
    const EpochReport &got = epochs[i], &expected = whole.recorder.epochs[i];
    EXPECT_EQ(got.split, expected.split);
    EXPECT_EQ(got.epoch, expected.epoch);
    EXPECT_EQ(got.step, expected.step);
    EXPECT_EQ(got.examples, expected.examples) << got.split;
    for (const auto& [name, value] : expected.metrics)
      EXPECT_NEAR(got.metrics.at(name), value, tolerance) << got.split << " " << name;
  }
}

class Resume : public ::testing::TestWithParam<std::tuple<Case, Cut>> {};
INSTANTIATE_TEST_SUITE_P(Cuts, Resume,
                         ::testing::Combine(::testing::ValuesIn(Cases()),
                                            ::testing::Values(Cut{1, ""}, Cut{3, ""}, Cut{8, ""},
                                                              Cut{12, ""}, Cut{12, "validation"},
                                                              Cut{18, ""}, Cut{18, "validation"},
                                                              Cut{18, "test"})),
                         [](const auto& info) {
                           const Cut& cut = std::get<1>(info.param);
                           return std::get<0>(info.param).name + "_" + std::to_string(cut.step) +
                                  cut.within;
                         });

struct KeptRun {
  KeptCheckpoints kept;
  RunResult result;
};

// The run that is not stopped. All cuts of a case are compared with the same one.
const KeptRun& WholeRun(const Case& c, int replicas) {
  static auto& runs = *new std::map<std::pair<std::string, int>, KeptRun>;
  const auto [run, is_new] = runs.try_emplace({c.name, replicas});
  if (is_new)
    run->second.result = testing::Run(CaseOptions(c, replicas, &run->second.kept), c.set_up);
  return run->second;
}

std::unique_ptr<KeptRun> RunUntil(const Case& c, const Cut& cut, int replicas) {
  auto run = std::make_unique<KeptRun>();
  RunOptions until = CaseOptions(c, replicas, &run->kept);
  if (cut.within.empty()) {
    until.stop_before_start = cut.step == 1;
    until.stop_at_step = cut.step - 1;  // the next one is agreed on
  } else {
    until.stop_in_split = cut.within;
    until.stop_at_pass = cut.within == "test" ? 1 : cut.step / 6;
  }
  run->result = testing::Run(until, c.set_up);
  return run;
}

TEST_P(Resume, GoesOnAsIfItHadNeverStopped) {
  const auto& [c, cut] = GetParam();
  std::map<int, std::unique_ptr<KeptRun>> stopped;  // by the number of replicas
  // From so many replicas to so many.
  for (const auto& [from, to] : {std::pair{1, 1}, {2, 2}, {3, 3}, {2, 3}, {3, 1}}) {
    if (from != to && !c.other_replicas) continue;
    SCOPED_TRACE(::testing::Message() << from << " to " << to << " replicas");
    const auto& [whole_kept, whole] = WholeRun(c, from);
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    ASSERT_EQ(whole.recorder.steps.size(), static_cast<size_t>(kSteps));

    std::unique_ptr<KeptRun>& stopped_here = stopped[from];
    if (stopped_here == nullptr) stopped_here = RunUntil(c, cut, from);
    auto& [first_kept, first] = *stopped_here;
    ASSERT_EQ(ExitCodeOf(first.status), ExitCode::kPreempted) << first.status;
    ASSERT_EQ(first.recorder.steps.size(), static_cast<size_t>(cut.step));
    EXPECT_EQ(first_kept.drains, 1);
    ASSERT_TRUE(first_kept.moments.back().stopping);

    KeptCheckpoints second_kept;

    RunOptions rest = CaseOptions(c, to, &second_kept);
    rest.restore = &first_kept.kept.back();
    const RunResult second = testing::Run(rest, c.set_up);
    ASSERT_TRUE(second.status.ok()) << second.status;
    EXPECT_EQ(second.recorder.start.start_step, cut.step);
    EXPECT_EQ(second.recorder.start.start_examples,
              cut.step / 6 * kExamples + cut.step % 6 * kBatch);

    const double tolerance = from == to ? 0 : c.tolerance;
    ExpectSameRun(first, second, whole, tolerance);
    if (cut.step == kSteps) continue;  // nothing was left to do but passes
    ExpectSameTensors(second_kept.kept.back().model, whole_kept.kept.back().model, tolerance);
    ExpectSameTensors(second_kept.kept.back().optimizer, whole_kept.kept.back().optimizer,
                      tolerance);
    EXPECT_EQ(second_kept.kept.back().state.loss_scaler, whole_kept.kept.back().state.loss_scaler);
    EXPECT_EQ(second_kept.kept.back().state.extras.skipped,
              whole_kept.kept.back().state.extras.skipped);
    EXPECT_EQ(second_kept.kept.back().state.examples, kEpochs * kExamples);
  }
}

TEST(ResumeOf, Float16HasAScaleThatMoved) {
  KeptCheckpoints kept;
  const Case c = Cases().back();
  ASSERT_EQ(c.name, "Float16");
  const RunResult run = testing::Run(CaseOptions(c, 1, &kept), c.set_up);
  ASSERT_TRUE(run.status.ok());
  const checkpoint::TrainingState& state = kept.kept.back().state;
  EXPECT_LT(state.loss_scaler.at(0), 65536);
  // Each skipped step halves the scale, and is reported with its step.
  EXPECT_EQ(state.extras.skipped.total, std::log2(65536 / state.loss_scaler.at(0)));
  EXPECT_EQ(state.extras.skipped.in_a_row, 0);
  int64_t skipped = 0;
  double scale = 65536;
  for (const StepReport& step : run.recorder.steps) {
    ASSERT_TRUE(step.loss_scale.has_value());
    skipped += step.loss_scale->skipped ? 1 : 0;
    scale /= step.loss_scale->skipped ? 2 : 1;
    EXPECT_EQ(step.loss_scale->skipped_steps, skipped);
    EXPECT_EQ(step.loss_scale->scale, scale);
  }
  EXPECT_EQ(skipped, state.extras.skipped.total);
  EXPECT_GT(skipped, 0);
}

TEST(ResumeOf, APerReplicaBatchSizeStaysWhatItWas) {
  const Case c = Cases()[0];
  KeptCheckpoints kept, unused;
  RunOptions first = CaseOptions(c, 2, &kept);
  first.job.global_batch_size.reset();
  first.job.per_replica_batch_size = 2;
  first.stop_at_step = 2;
  ASSERT_EQ(ExitCodeOf(testing::Run(first, c.set_up).status), ExitCode::kPreempted);
  EXPECT_EQ(kept.kept.back().state.global_batch_size, 4);
  RunOptions second = first;
  second.stop_at_step = 0;
  second.devices.assign(3, c10::Device(at::kCPU));
  second.checkpoints = &unused;
  second.restore = &kept.kept.back();
  const RunResult rest = testing::Run(second, c.set_up);
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_EQ(rest.recorder.start.global_batch_size, 4);
  EXPECT_EQ(rest.recorder.steps.size(), 15u);
}

TEST(ResumeOf, AJobThatIsThroughEndsAtOnceAndALongerOneGoesOn) {
  const Case c = Cases()[0];
  KeptCheckpoints kept, again, longer_kept, whole_kept;
  RunOptions options = CaseOptions(c, 1, &kept);
  const RunResult through = testing::Run(options, c.set_up);
  ASSERT_TRUE(through.status.ok());
  EXPECT_TRUE(through.recorder.start.train_metrics.empty());
  checkpoint::Snapshot end = kept.kept.back();
  EXPECT_TRUE(end.state.validation_due);
  EXPECT_TRUE(end.state.test_due);

  // Its passes are due: they come again, and nothing else.
  options.checkpoints = &again;
  options.restore = &end;
  const RunResult passes = testing::Run(options, c.set_up);
  ASSERT_TRUE(passes.status.ok());
  EXPECT_TRUE(passes.recorder.start.validation_due);
  EXPECT_TRUE(passes.recorder.start.test_due);
  EXPECT_TRUE(passes.recorder.steps.empty());
  EXPECT_EQ(passes.recorder.start.train_metrics,
            through.recorder.Find("train", kEpochs - 1)->metrics);
  ASSERT_EQ(passes.recorder.epochs.size(), 2u);
  EXPECT_EQ(passes.recorder.epochs[1].split, "test");
  EXPECT_TRUE(again.kept.empty());

  checkpoint::Snapshot nothing_due = end;
  nothing_due.state.validation_due = nothing_due.state.test_due = false;
  options.restore = &nothing_due;
  const RunResult none = testing::Run(options, c.set_up);
  ASSERT_TRUE(none.status.ok());
  EXPECT_TRUE(none.recorder.steps.empty());
  EXPECT_TRUE(none.recorder.epochs.empty());

  // Two epochs more: the test pass belongs to the new end.
  options.restore = &end;
  options.job.epochs = kEpochs + 2;
  options.checkpoints = &longer_kept;
  const RunResult more = testing::Run(options, c.set_up);
  ASSERT_TRUE(more.status.ok());
  EXPECT_FALSE(more.recorder.start.test_due);
  EXPECT_EQ(more.recorder.steps.size(), 12u);
  EXPECT_EQ(more.recorder.Find("test", 2), nullptr);
  EXPECT_NE(more.recorder.Find("test", 4), nullptr);
  RunOptions whole = CaseOptions(c, 1, &whole_kept);
  whole.job.epochs = kEpochs + 2;
  ASSERT_TRUE(testing::Run(whole, c.set_up).status.ok());
  ExpectSameTensors(longer_kept.kept.back().model, whole_kept.kept.back().model, 0);
}

TEST(ResumeOf, MoreStepsWithinAnEpochKeepItsSums) {
  const Case c = Cases()[0];
  KeptCheckpoints kept, unused, whole_kept;
  RunOptions options = CaseOptions(c, 2, &kept);
  options.job.max_steps = 8;
  const RunResult first = testing::Run(options, c.set_up);
  ASSERT_TRUE(first.status.ok());
  EXPECT_EQ(first.recorder.Find("train", 1)->examples, 8) << "the part that was trained";
  EXPECT_NE(first.recorder.Find("test", 1), nullptr);
  options.restore = &kept.kept.back();
  options.checkpoints = &unused;
  options.job.max_steps.reset();
  const RunResult second = testing::Run(options, c.set_up);
  ASSERT_TRUE(second.status.ok());
  EXPECT_FALSE(second.recorder.start.validation_due) << "not an end any more";
  const RunResult whole = testing::Run(CaseOptions(c, 2, &whole_kept), c.set_up);
  EXPECT_EQ(second.recorder.Find("train", 1)->examples, kExamples);
  EXPECT_EQ(second.recorder.Find("train", 1)->metrics, whole.recorder.Find("train", 1)->metrics);
}

TEST(ResumeOf, AProgramWithItsOwnLoopGoesOnAtTheNextStep) {
  Case c = Cases()[0];
  const auto set_up = c.set_up;
  c.set_up = [set_up](TestProgram& p) {
    set_up(p);
    p.on_run = [](TestProgram& self, Loop& loop) {
      const auto validate = [&] {
        if (loop.steps() == 0 || !loop.epoch_begins()) return;
        EXPECT_EQ(loop.evaluate(Split::kValidation).count("mae"), 1u);
      };
      validate();
      data::Batch batch;
      while (loop.next(&batch)) {
        loop.step([&](Step& step, const data::Batch& part) { self.on_step(self, step, part); });
        validate();
      }
    };
  };
  for (const bool in_validation : {false, true}) {
    KeptCheckpoints whole_kept, kept, rest_kept;
    const RunResult whole = testing::Run(CaseOptions(c, 2, &whole_kept), c.set_up);
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    RunOptions until = CaseOptions(c, 2, &kept);
    if (in_validation) {
      until.stop_in_split = "validation";
      until.stop_at_pass = 2;
    } else {
      until.stop_at_step = 7;
    }
    const RunResult first = testing::Run(until, c.set_up);
    ASSERT_EQ(ExitCodeOf(first.status), ExitCode::kPreempted) << first.status;
    RunOptions rest = CaseOptions(c, 2, &rest_kept);
    rest.restore = &kept.kept.back();
    const RunResult second = testing::Run(rest, c.set_up);
    ASSERT_TRUE(second.status.ok()) << second.status;
    ExpectSameRun(first, second, whole, 0);
    ExpectSameTensors(rest_kept.kept.back().model, whole_kept.kept.back().model, 0);
  }
}

}  // namespace
}  // namespace muster
