// Tests callbacks of a program. All replicas follow a decision of one replica at the same step. A
// run that is stopped and resumed has the same results as one without a stop.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/files/created_files.h"
#include "muster/callback.h"
#include "tests/unit/base/logged_lines.h"
#include "tests/unit/train/kept.h"

namespace muster {
namespace {

using testing::KeptCheckpoints;
using testing::RunOptions;
using testing::RunResult;
using testing::TestProgram;

// An epoch has 12 examples in batches of 4, so it has three steps.
constexpr int64_t kEpochs = 4;

at::Tensor X() { return at::arange(24, at::kFloat).reshape({12, 2}).sin(); }
at::Tensor Y() { return at::matmul(X(), at::tensor({1.f, -2.f})) + 0.5; }

// A callback that records its calls and then calls a function of the test.
class Recording : public Callback {
 public:
  using Hook = std::function<void(CallbackContext&)>;
  std::function<void(const std::string& hook, CallbackContext&)> act;
  std::vector<std::string>* heard = nullptr;
  bool decides = true;

  void train_begin(CallbackContext& c) override { Hear("train_begin", c); }
  void train_end(CallbackContext& c) override { Hear("train_end", c); }
  void epoch_begin(CallbackContext& c) override { Hear("epoch_begin", c); }
  void epoch_end(CallbackContext& c) override { Hear("epoch_end", c); }
  void step_begin(CallbackContext& c) override { Hear("step_begin", c); }
  void step_end(CallbackContext& c) override {
    ++steps_;
    Hear("step_end", c);
  }
  void pass_begin(CallbackContext& c) override { Hear("pass_begin", c); }
  void pass_end(CallbackContext& c) override { Hear("pass_end", c); }
  Json state() const override { return steps_; }
  void set_state(const Json& state) override { steps_ = state.get<int64_t>(); }
  bool decides_in_steps() const override { return decides; }

 private:
  void Hear(const std::string& hook, CallbackContext& context) {
    if (heard != nullptr) heard->push_back(fmt::format("{} {}", hook, context.step()));
    if (act) act(hook, context);
  }
  int64_t steps_ = 0;
};

Job TheJob() {
  Job job;
  job.global_batch_size = 4;
  job.epochs = kEpochs;
  return job;
}

struct Runs {
  std::vector<std::string> heard;
  std::function<void(const std::string& hook, CallbackContext&)> act;
  KeptCheckpoints kept;
  bool validates = true, tests = false, decides = true;
  std::function<at::Tensor(TestProgram&, Prediction&, const data::Batch&)> predict;

  RunResult Run(int replicas, RunOptions options = {.job = TheJob()}) {
    options.devices.assign(replicas, c10::Device(at::kCPU));
    options.checkpoints = &kept;
    return testing::Run(options, [this](TestProgram& program) {
      LeastSquares(program, X(), Y());
      program.on_predict = predict;
      const auto build = program.on_build;
      program.on_build = [this, build](TestProgram& self, Builder& builder) {
        build(self, builder);
        if (validates) builder.dataset(Split::kValidation, testing::Tensors2(X(), Y()));
        if (tests) builder.dataset(Split::kTest, testing::Tensors2(X(), Y()));
        auto recording = std::make_shared<Recording>();
        recording->decides = decides;
        recording->heard = &heard;
        recording->act = act;
        builder.callback("recording", recording);
      };
      program.on_eval = [](TestProgram& self, Evaluation& evaluation, const data::Batch& batch) {
        evaluation.loss(SquaredError(self, batch));
      };
    });
  }
};

TEST(Callbacks, AreCalledInKerasOrder) {
  Runs runs;
  Job job = TheJob();
  job.max_steps = 4;
  const RunResult result = runs.Run(2, {.job = job});
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(runs.heard,
              ::testing::ElementsAre("train_begin 0", "epoch_begin 0", "step_begin 1", "step_end 1",
                                     "step_begin 2", "step_end 2", "step_begin 3", "step_end 3",
                                     "pass_begin 3", "pass_end 3", "epoch_end 3", "epoch_begin 3",
                                     "step_begin 4", "step_end 4", "pass_begin 4", "pass_end 4",
                                     "epoch_end 4", "train_end 4"));
}

TEST(Callbacks, AreNotCalledWhereAnotherProcessOwnsTheFolder) {
  Runs runs;
  runs.act = [&](const std::string& hook, CallbackContext& context) {
    if (hook == "epoch_begin" && context.step() == 3)
      runs.kept.owner = Superseded("another owns it");
  };
  const RunResult result = runs.Run(2);
  EXPECT_TRUE(absl::IsAborted(result.status)) << result.status;
  EXPECT_EQ(runs.heard.back(), "step_end 6") << "a hook might have written a file";
}

// Only one replica requests the stop.
TEST(Callbacks, AStopInAStepIsObeyedByAllReplicasAtThatStep) {
  for (const int replicas : {1, 3}) {
    Runs runs;
    int looks = 0;
    runs.act = [&](const std::string& hook, CallbackContext& context) {
      if (hook == "step_end" && ++looks == 5) context.stop("the clock");
    };
    const RunResult result = runs.Run(replicas);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.recorder.steps.size(), 5u);
    EXPECT_EQ(result.recorder.finished, 5);
    EXPECT_EQ(runs.heard.back(), "train_end 5");
    // The epoch of the stop is validated.
    ASSERT_NE(result.recorder.Find("validation", 1), nullptr);
    ASSERT_EQ(runs.kept.kept.back().state.step, 5);
    EXPECT_TRUE(runs.kept.kept.back().state.extras.finished);
    for (const auto& replica : result.replicas)
      EXPECT_TRUE(at::equal(replica.at("w"), result.replicas[0].at("w")));
  }
}

TEST(Callbacks, RatesThatAreSetCountFromTheNextStepOn) {
  std::vector<double> losses;
  for (const int replicas : {1, 3}) {
    Runs runs;
    runs.act = [](const std::string& hook, CallbackContext& context) {
      if (hook == "step_begin" && context.step() == 3) context.set_learning_rate(0.01);
      if (hook == "epoch_end") context.set_learning_rate(context.learning_rate() * 0.5);
    };
    const RunResult result = runs.Run(replicas);
    ASSERT_TRUE(result.status.ok()) << result.status;
    std::vector<double> rates;
    for (const StepReport& step : result.recorder.steps) rates.push_back(step.learning_rate);
    const double first = 0.1;
    EXPECT_THAT(rates, ::testing::ElementsAre(first, first, 0.01, 0.005, 0.005, 0.005, 0.0025,
                                              0.0025, 0.0025, 0.00125, 0.00125, 0.00125));
    if (replicas == 1) losses = result.recorder.losses();
    EXPECT_THAT(result.recorder.losses(),
                ::testing::Pointwise(::testing::DoubleNear(1e-5), losses));
  }
}

// Stops the run after each step and each pass. The resumed run has the same results as one without
// a stop.
TEST(Callbacks, ARunThatIsCutGoesOnAsIfItHadNotBeen) {
  const auto act = [](const std::string& hook, CallbackContext& context) {
    if (hook == "epoch_end" && context.epoch() == 1) context.keep_weights();
    if (hook == "epoch_end")
      context.set_learning_rate(context.learning_rate() / (1 + context.metrics().at("val_loss")));
    if (hook == "epoch_end" && context.epoch() == 2) context.stop("enough");
    if (hook == "train_end") context.restore_weights();
  };
  Job job = TheJob();
  job.callbacks = Json::array({{{"name", "ema"}, {"decay", 0.7}}});
  Runs whole;
  whole.act = act;
  const RunResult undisturbed = whole.Run(2, {.job = job});
  ASSERT_TRUE(undisturbed.status.ok()) << undisturbed.status;
  ASSERT_EQ(undisturbed.recorder.steps.size(), 9u);
  for (int64_t cut = 1; cut <= 9; ++cut) {
    Runs runs;
    runs.act = act;
    const RunResult before = runs.Run(2, {.job = job, .stop_at_step = cut});
    ASSERT_EQ(ExitCodeOf(before.status), ExitCode::kPreempted) << before.status;
    const checkpoint::Snapshot saved = runs.kept.kept.back();
    runs.heard.clear();
    const RunResult after = runs.Run(2, {.job = job, .restore = &saved});
    ASSERT_TRUE(after.status.ok()) << after.status;
    EXPECT_EQ(runs.heard.back(), "train_end 9");
    const checkpoint::Snapshot &got = runs.kept.kept.back(), &want = whole.kept.kept.back();
    EXPECT_EQ(got.state.extras, want.state.extras) << "cut after step " << cut;
    EXPECT_EQ(got.state.extras.callbacks->states.at("recording"), Json(9));
    EXPECT_EQ(got.state.extras.callbacks->weights_of, 6);
    for (size_t i = 0; i < want.model.tensors.size(); ++i) {
      EXPECT_TRUE(at::equal(ViewOf(got.model.tensors[i]), ViewOf(want.model.tensors[i])))
          << "cut after step " << cut;
      EXPECT_TRUE(
          at::equal(ViewOf(got.kept.at("ema").tensors[i]), ViewOf(want.kept.at("ema").tensors[i])))
          << "cut after step " << cut;
    }
  }
}

TEST(Callbacks, TheMovingAverageIsKerasAndBesideTheWeights) {
  for (const int replicas : {1, 3}) {
    Runs runs;
    std::map<std::string, double> metrics;
    at::Tensor average;
    runs.act = [&](const std::string& hook, CallbackContext& context) {
      if (hook == "epoch_end") metrics = context.metrics();
    };
    Job job = TheJob();
    job.callbacks = Json::array({{{"name", "ema"}, {"decay", 0.8}, {"every_steps", 2}}});
    runs.kept.wanted = [](const SaveMoment&) { return true; };
    const RunResult result = runs.Run(replicas, {.job = job});
    ASSERT_TRUE(result.status.ok()) << result.status;
    // Computes the expected average from the checkpoints of every second step.
    for (const checkpoint::Snapshot& snapshot : runs.kept.kept) {
      if (snapshot.state.step % 2 != 0) continue;
      const at::Tensor w = ViewOf(*snapshot.model.Find("w")).clone();
      average = average.defined() ? 0.8 * average + 0.2 * w : w;
      EXPECT_TRUE(at::allclose(ViewOf(*snapshot.kept.at("ema").Find("w")), average, 1e-5, 1e-6))
          << "after step " << snapshot.state.step;
    }
    ASSERT_TRUE(average.defined());
    EXPECT_TRUE(metrics.contains("val_ema_loss"));
    EXPECT_NE(metrics.at("val_ema_loss"), metrics.at("val_loss"));
    EXPECT_EQ(runs.kept.kept.back().state.step, 12);
  }
}

// Each hook predicts with the current weights, and the predictions do not change training.
TEST(Callbacks, AHookPredictsWithTheWeightsOfNow) {
  for (const int replicas : {1, 3}) {
    Runs plain;
    const RunResult want = plain.Run(replicas);
    Runs runs;
    at::Tensor w = at::zeros({2});
    runs.predict = [&](TestProgram& self, Prediction& prediction, const data::Batch& batch) {
      EXPECT_FALSE(at::GradMode::is_enabled());
      EXPECT_FALSE(self.model->is_training());
      EXPECT_EQ(prediction.columns(), std::vector<std::string>{"x"});
      at::rand({3});
      w = (*self.model)["w"].detach().clone();
      return at::matmul(batch[0], (*self.model)["w"]) + (*self.model)["b"];
    };
    std::map<std::string, at::Tensor> predicted;
    runs.act = [&](const std::string& hook, CallbackContext& context) {
      const at::Tensor outputs = context.predict({X()});
      EXPECT_EQ(outputs.sizes(), at::IntArrayRef({12}));
      EXPECT_FALSE(outputs.requires_grad());
      EXPECT_TRUE(at::GradMode::is_enabled());
      predicted[fmt::format("{} {}", hook, context.step())] = outputs;
      if (hook == "epoch_end")
        context.record(fmt::format("{}", context.epoch()), w[0].item<float>());
    };
    runs.kept.wanted = [](const SaveMoment&) { return true; };
    const RunResult result = runs.Run(replicas);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(predicted.size(), runs.heard.size());
    EXPECT_EQ(result.recorder.losses(), want.recorder.losses());
    for (const checkpoint::Snapshot& snapshot : runs.kept.kept) {
      const auto tensor = [&](const char* name) { return ViewOf(*snapshot.model.Find(name)); };
      const at::Tensor of_checkpoint = at::matmul(X(), tensor("w")) + tensor("b");
      const auto now = predicted.find(fmt::format("step_end {}", snapshot.state.step));
      ASSERT_NE(now, predicted.end());
      EXPECT_TRUE(at::allclose(now->second, of_checkpoint, 1e-5, 1e-6)) << snapshot.state.step;
    }
    EXPECT_FALSE(at::allclose(predicted.at("step_begin 2"), predicted.at("step_end 2")));
    EXPECT_TRUE(at::equal(predicted.at("step_begin 2"), predicted.at("step_end 1")));
  }
}

TEST(Callbacks, APredictionThatFailsEndsTheJobWithTheCallbacksName) {
  const auto fails = [](const data::Batch& batch, const std::vector<std::string>& columns = {}) {
    Runs runs;
    runs.predict = [](TestProgram&, Prediction&, const data::Batch& of) {
      if (of[0].size(1) != 2) throw std::invalid_argument("not mine");
      return of[0].sum(1);
    };
    runs.act = [=](const std::string& hook, CallbackContext& context) {
      if (hook == "epoch_end") context.predict(batch, columns);
    };
    const RunResult result = runs.Run(2);
    EXPECT_EQ(ExitCodeOf(result.status), ExitCode::kProgramFailed) << result.status;
    return std::string(Message(result.status));
  };
  EXPECT_EQ(fails({at::zeros({4, 3})}), "callback \"recording\" in predict: not mine");
  EXPECT_EQ(fails({at::zeros({0, 2})}),
            "callback \"recording\" in predict: the batch has no examples");
  EXPECT_EQ(fails({at::zeros({1, 2})}, {"a", "b"}),
            "callback \"recording\" in predict: the batch has 1 components, and names for 2");
  Runs runs;
  runs.act = [](const std::string& hook, CallbackContext& context) {
    if (hook == "train_end") context.predict({X()});
  };
  EXPECT_THAT(std::string(Message(runs.Run(1).status)),
              ::testing::HasSubstr("override Program::predict"));
}

TEST(Callbacks, WhatAHookThrowsEndsTheJobWithItsName) {
  Runs runs;
  runs.act = [](const std::string& hook, CallbackContext&) {
    if (hook == "epoch_begin") throw std::runtime_error("no luck");
  };
  const RunResult result = runs.Run(1);
  EXPECT_EQ(ExitCodeOf(result.status), ExitCode::kProgramFailed);
  EXPECT_EQ(Message(result.status), "callback \"recording\" in epoch_begin failed: no luck");
}

TEST(Callbacks, ACheckpointWithoutTheirStateRestartsThem) {
  Runs runs;
  // The loop stops after the next step.
  const RunResult before = runs.Run(1, {.job = TheJob(), .stop_at_step = 4});
  ASSERT_EQ(ExitCodeOf(before.status), ExitCode::kPreempted);
  checkpoint::Snapshot saved = runs.kept.kept.back();
  saved.state.extras.callbacks.reset();
  runs.heard.clear();
  const RunResult after = runs.Run(1, {.job = TheJob(), .restore = &saved});
  ASSERT_TRUE(after.status.ok()) << after.status;
  EXPECT_EQ(runs.heard[0], "train_begin 5");
  EXPECT_EQ(runs.heard[1], "step_begin 6");
  EXPECT_EQ(runs.kept.kept.back().state.extras.callbacks->states.at("recording"), Json(7));
}

// A stop in the test pass saves the results so far. After a resume, the last checkpoint has all
// results and replaces the earlier one.
TEST(Callbacks, TheLastCheckpointHasAllThatBelongsToTheEnd) {
  Runs runs;
  runs.tests = true;
  runs.act = [](const std::string& hook, CallbackContext& context) {
    if (hook == "epoch_end" && context.epoch() == 0) context.keep_weights();
    if (hook == "epoch_end" && context.epoch() == 1) context.stop("enough");
    if (hook == "train_end") context.restore_weights();
    if (hook == "pass_end" && context.split() == Split::kTest) context.record("tested", true);
  };
  runs.kept.wanted = [](const SaveMoment& moment) { return moment.epoch_end; };
  const RunResult cut = runs.Run(2, {.job = TheJob(), .stop_in_split = "test"});
  ASSERT_EQ(ExitCodeOf(cut.status), ExitCode::kPreempted) << cut.status;
  const checkpoint::Snapshot stopped = runs.kept.kept.back();
  EXPECT_TRUE(stopped.replaces) << "step 6 was saved before the weights were put back";
  EXPECT_TRUE(stopped.state.extras.callbacks->ended && stopped.state.test_due);
  runs.kept.kept.clear();
  runs.heard.clear();
  ASSERT_TRUE(runs.Run(2, {.job = TheJob(), .restore = &stopped}).status.ok());
  EXPECT_THAT(runs.heard, ::testing::ElementsAre("pass_begin 6", "pass_end 6"));
  ASSERT_EQ(runs.kept.kept.size(), 1u);
  const checkpoint::Snapshot whole = runs.kept.kept.back();
  EXPECT_TRUE(whole.replaces);
  EXPECT_FALSE(whole.state.test_due);
  EXPECT_EQ(whole.state.extras.callbacks->weights_of, 3);
  EXPECT_EQ(whole.state.extras.callbacks->notes.at("recording"), (Json{{"tested", true}}));
  runs.kept.kept.clear();
  ASSERT_TRUE(runs.Run(2, {.job = TheJob(), .restore = &whole}).status.ok());
  EXPECT_THAT(runs.kept.kept, ::testing::IsEmpty()) << "nothing is left to save";
}

TEST(Callbacks, WeightsThatAnExportLacksAreNotPutBack) {
  Runs runs;
  std::optional<bool> has;
  runs.act = [&](const std::string& hook, CallbackContext& context) {
    if (hook == "epoch_end" && context.epoch() == 0) context.keep_weights();
    if (hook == "train_end") has = context.has_weights();
  };
  ASSERT_EQ(ExitCodeOf(runs.Run(2, {.job = TheJob(), .stop_at_step = 7}).status),
            ExitCode::kPreempted);
  checkpoint::Snapshot saved = runs.kept.kept.back();
  ASSERT_EQ(saved.kept.erase("recording"), 1u);
  ASSERT_TRUE(runs.Run(2, {.job = TheJob(), .restore = &saved}).status.ok());
  EXPECT_EQ(has, false) << "those of step 8 would pass for those of step 3";
}

TEST(Callbacks, KeptWeightsAreOfTheStepWhoseTheyAre) {
  for (const bool decides : {true, false}) {
    Runs runs;
    runs.decides = decides;
    runs.act = [](const std::string& hook, CallbackContext& context) {
      if (hook == "step_begin" && context.step() == 5) context.keep_weights();
      if (hook == "train_end") context.restore_weights();
    };
    ASSERT_TRUE(runs.Run(2).status.ok());
    const checkpoint::CallbackRecord& record = *runs.kept.kept.back().state.extras.callbacks;
    EXPECT_EQ(record.kept.at("recording"), decides ? 4 : 6);
    EXPECT_EQ(record.weights_of, decides ? 4 : 6);
  }
}

TEST(Callbacks, WeightsThatWerePutBackInTheMiddleAreNotThoseOfTheEnd) {
  Runs runs;
  runs.act = [](const std::string& hook, CallbackContext& context) {
    if (hook == "epoch_end" && context.epoch() == 0) context.keep_weights();
    if (hook == "epoch_end" && context.epoch() == 1) context.restore_weights();
  };
  ASSERT_TRUE(runs.Run(2).status.ok());
  EXPECT_EQ(runs.kept.kept.back().state.extras.callbacks->weights_of, 0);
}

TEST(Callbacks, ANewLearningRateGoesBeforeOneThatWasSet) {
  Runs runs;
  runs.act = [](const std::string& hook, CallbackContext& context) {
    if (hook == "epoch_end" && context.epoch() == 0) context.set_learning_rate(0.01);
  };
  ASSERT_EQ(ExitCodeOf(runs.Run(2, {.job = TheJob(), .stop_at_step = 4}).status),
            ExitCode::kPreempted);
  const checkpoint::Snapshot saved = runs.kept.kept.back();
  const auto rate_after = [&](const Json& rate, bool of_before) {
    checkpoint::Snapshot restored = saved;
    if (of_before) restored.state.extras.callbacks->rates_of.clear();
    Job job = TheJob();
    job.learning_rate = rate;
    const RunResult after = runs.Run(2, {.job = job, .restore = &restored});
    EXPECT_TRUE(after.status.ok()) << after.status;
    return after.recorder.steps.at(0).learning_rate;
  };
  EXPECT_EQ(rate_after(Json(), false), 0.01);
  EXPECT_EQ(rate_after(0.05, false), 0.05);
  EXPECT_EQ(rate_after(0.05, true), 0.01) << "a checkpoint of before does not tell";
}

TEST(Callbacks, AJobThatGrewTellsNothingOfItsEndBefore) {
  Runs runs;
  Job job = TheJob();
  job.epochs = 10;
  // No epoch is better than the first one.
  job.callbacks = Json::array({{{"name", "early_stopping"},
                                {"monitor", "loss"},
                                {"min_delta", 1000},
                                {"patience", 2},
                                {"restore_best_weights", true}}});
  ASSERT_TRUE(runs.Run(2, {.job = job}).status.ok());
  checkpoint::Snapshot saved = runs.kept.kept.back();
  ASSERT_EQ(saved.state.step, 9);
  const auto note = [](const checkpoint::Snapshot& snapshot, const char* key) {
    return snapshot.state.extras.callbacks->notes.at("early_stopping").at(key);
  };
  EXPECT_EQ(note(saved, "stopped_after_epoch"), Json(3));
  EXPECT_EQ(note(saved, "restored_from_step"), Json(3));
  saved.state.extras.finished = false;  // SetDue does this if the job was made longer.
  runs.kept.wanted = [](const SaveMoment& moment) { return moment.step == 10; };
  runs.kept.kept.clear();
  ASSERT_TRUE(runs.Run(2, {.job = job, .restore = &saved}).status.ok());
  ASSERT_EQ(runs.kept.kept.size(), 2u);
  const checkpoint::Snapshot &under_way = runs.kept.kept[0], &end = runs.kept.kept[1];
  EXPECT_EQ(under_way.state.extras.callbacks->weights_of, 0);
  EXPECT_EQ(note(under_way, "stopped_after_epoch"), Json());
  EXPECT_EQ(note(under_way, "restored_from_step"), Json());
  EXPECT_EQ(end.state.step, 15) << "it has its patience again";
  EXPECT_EQ(note(end, "stopped_after_epoch"), Json(5));
}

TEST(Callbacks, OneObjectIsListedOnce) {
  Job job = TheJob();
  job.callbacks = Json::array({{{"name", "recording"}}, {{"name", "recording"}}});
  Runs runs;
  const RunResult result = runs.Run(1, {.job = job});
  EXPECT_EQ(ExitCodeOf(result.status), ExitCode::kConfiguration) << result.status;
  EXPECT_EQ(Message(result.status),
            "callbacks[1] is \"recording\" once more, as callbacks[0], but the program has one "
            "object of that name: list it once, or register a function that makes one");
}

// Tests callbacks that write files.
class CallbackFiles : public ::testing::Test {
 protected:
  CallbackFiles() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }
  ~CallbackFiles() override { std::filesystem::remove_all(folder_); }
  Job With(const Json& callback) const {
    Job job = TheJob();
    job.model_dir = folder_;
    job.callbacks = Json::array({callback});
    return job;
  }
  std::string Read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(folder_ + "/" + name).rdbuf();
    return text.str();
  }
  // Returns the first field of each line.
  std::vector<std::string> Epochs(const std::string& name) const {
    std::vector<std::string> epochs;
    std::istringstream lines(Read(name));
    for (std::string line; std::getline(lines, line);)
      epochs.push_back(line.substr(0, line.find(',')));
    return epochs;
  }

  // Other tests run at the same time, each in its own process.
  std::string folder_ = ::testing::TempDir() + "callback_files_XXXXXX";
  Runs runs_;
};

TEST_F(CallbackFiles, TheBatchWithinAnEpochHasNoName) {
  const RunResult result = runs_.Run(
      1, {.job = With({{"name", "model_checkpoint"}, {"filepath", "m-{batch}.safetensors"}})});
  EXPECT_EQ(ExitCodeOf(result.status), ExitCode::kConfiguration);
  EXPECT_THAT(std::string(Message(result.status)),
              ::testing::HasSubstr("callbacks[0].filepath names {batch}, which in Keras is the "
                                   "batch within its epoch: write {step}"));
}

TEST_F(CallbackFiles, AProcessWhoseFolderAnotherOneOwnsEnds) {
  runs_.act = [&](const std::string& hook, CallbackContext& context) {
    if (hook == "step_begin" && context.step() == 4)
      runs_.kept.owner = Superseded("another owns it");
  };
  const RunResult result = runs_.Run(2, {.job = With({{"name", "model_checkpoint"},
                                                      {"filepath", "m-{step}.safetensors"},
                                                      {"save_freq", 1}})});
  EXPECT_TRUE(absl::IsAborted(result.status)) << result.status;
  EXPECT_EQ(runs_.heard.back(), "step_end 4");
}

TEST_F(CallbackFiles, ALineThatDidNotFitLeavesNoPart) {
  ASSERT_NE(std::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit all = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &all), 0);
  int64_t whole = 0;
  runs_.act = [&](const std::string& hook, CallbackContext& context) {
    if (hook != "epoch_end") return;
    if (context.epoch() == 2) {
      EXPECT_EQ(std::filesystem::file_size(folder_ + "/log.csv"), whole);
    }
    rlimit now = all;
    if (context.epoch() == 1) {
      whole = static_cast<int64_t>(std::filesystem::file_size(folder_ + "/log.csv"));
      now.rlim_cur = whole + 5;
    }
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
  };
  const RunResult result =
      runs_.Run(1, {.job = With({{"name", "csv_logger"}, {"filename", "log.csv"}})});
  setrlimit(RLIMIT_FSIZE, &all);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(Epochs("log.csv"), ::testing::ElementsAre("epoch", "0", "2", "3"));
}

TEST_F(CallbackFiles, APipeInTheFilesPlaceCostsTheLinesAlone) {
  ASSERT_EQ(mkfifo((folder_ + "/log.csv").c_str(), 0600), 0);
  AddJobFolder(folder_);
  const testing::LoggedLines lines;
  alarm(60);  // Ends the process if the callback waits for a reader.
  const RunResult result =
      runs_.Run(1, {.job = With({{"name", "csv_logger"}, {"filename", "log.csv"}})});
  alarm(0);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(lines.Count("/log.csv: it is no ordinary file; training continues"), 4);
}

TEST_F(CallbackFiles, ANewFileIsNotCutAtTheOldOnesLength) {
  const RunResult before = runs_.Run(
      1, {.job = With({{"name", "csv_logger"}, {"filename", "log.csv"}}), .stop_at_step = 7});
  ASSERT_EQ(ExitCodeOf(before.status), ExitCode::kPreempted);
  const checkpoint::Snapshot saved = runs_.kept.kept.back();
  const std::string other = std::string(1000, 'x') + "\n";
  std::ofstream(folder_ + "/other.csv") << other;
  const RunResult after = runs_.Run(
      1, {.job = With({{"name", "csv_logger"}, {"filename", "other.csv"}, {"append", true}}),
          .restore = &saved});
  ASSERT_TRUE(after.status.ok()) << after.status;
  EXPECT_TRUE(Read("other.csv").starts_with(other));
  EXPECT_EQ(Epochs("other.csv").size(), 3u);
}

}  // namespace
}  // namespace muster
