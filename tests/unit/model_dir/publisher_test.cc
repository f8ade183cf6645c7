#include "chief/model_dir/publisher.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "common/base/log_writer.h"
#include "common/base/logging.h"
#include "proto/event.pb.h"

namespace muster::chief {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using Kind = ProgressState::Kind;

struct Shown : ProgressSink {
  explicit Shown(std::vector<ProgressState>* states) : states(states) {}
  void Show(const ProgressState& state) override { states->push_back(state); }
  std::vector<ProgressState>* states;
};

class Publishing : public testing::Test {
 protected:
  Publishing() {
    std::string name = std::filesystem::temp_directory_path() / "muster-publish-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~Publishing() override { std::filesystem::remove_all(folder_); }

  PublisherOptions Options() {
    PublisherOptions options;
    options.model_dir = folder_ + "/run";
    options.summary_every_steps = 10;
    options.job = {{"program", "linear"}};
    options.progress = std::make_unique<Shown>(&states_);
    return options;
  }
  // Begun.
  std::unique_ptr<Publisher> Begun(bool continues = false) {
    auto publisher = Publisher::Open(Options());
    const absl::Status begun = publisher->Begin(continues);
    EXPECT_TRUE(begun.ok()) << begun;
    return publisher;
  }
  static StepReport Step(int64_t step) {
    return {.step = step,
            .epoch = (step - 1) / 20,
            .step_in_epoch = (step - 1) % 20 + 1,
            .steps_per_epoch = 20,
            .total_steps = 60,
            .loss = 1.0 / static_cast<double>(step),
            .learning_rate = 0.01,
            .learning_rates = {{"adam", 0.01}, {"sgd", 0.2}},
            .gradient_norms = step == 12 ? std::map<std::string, double>{{"adam", 3}}
                                         : std::map<std::string, double>{},
            .examples = 64,
            .values = {{"d_loss", 2.0}},
            .metrics = {{"accuracy", 0.5}},
            .wait_seconds = 0.02,
            .input_seconds = 0.025,
            .total_seconds = 0.1,
            .step_seconds = 0.1};
  }
  static void ForEachEvent(const std::string& folder,
                           const std::function<void(const summary::Event&)>& see) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      uint64_t size = 0;
      for (char header[12]; file.read(header, sizeof header);) {
        std::memcpy(&size, header, sizeof size);
        std::string data(size + 4, '\0');
        file.read(data.data(), static_cast<std::streamsize>(data.size()));
        summary::Event event;
        EXPECT_TRUE(event.ParseFromArray(data.data(), static_cast<int>(size)));
        see(event);
      }
    }
  }
  // tag -> steps, over all files of a run folder, and the steps of START events.
  std::map<std::string, std::vector<int64_t>> Summaries(const std::string& run = "train") const {
    std::map<std::string, std::vector<int64_t>> found;
    ForEachEvent(folder_ + "/run/" + run, [&found](const summary::Event& event) {
      for (const auto& value : event.summary().value()) found[value.tag()].push_back(event.step());
      if (event.has_session_log()) found["START"].push_back(event.step());
    });
    for (auto& [tag, steps] : found) std::sort(steps.begin(), steps.end());
    return found;
  }
  // The text of a tag in train/.
  std::string TextOf(const std::string& tag) const {
    std::string text;
    ForEachEvent(folder_ + "/run/train", [&](const summary::Event& event) {
      for (const auto& value : event.summary().value())
        if (value.tag() == tag) text = value.tensor().string_val(0);
    });
    return text;
  }
  Json ReadJson(const std::string& name) const {
    const auto json = ReadJsonFile(folder_ + "/run/" + name);
    EXPECT_TRUE(json.ok()) << json.status();
    return json.ok() ? *json : Json();
  }

  std::string folder_;
  std::vector<ProgressState> states_;
};

TEST_F(Publishing, WritesAllOfARun) {
  const auto publisher = Begun();
  EXPECT_EQ(ReadJson("job.json"), Json({{"program", "linear"}}));
  publisher->OnStart({.world_size = 2,
                      .num_replicas = 2,
                      .epochs = 3,
                      .parameters = {{"linear", "weight", {1, 1}}}});
  for (int64_t step = 1; step <= 25; ++step) publisher->OnStep(Step(step));
  publisher->OnEpoch({.split = "train", .epoch = 0, .step = 20, .metrics = {{"loss", 0.5}}});
  ASSERT_TRUE(publisher->Finish(absl::OkStatus()).ok());
  EXPECT_THAT(
      Summaries(),
      ElementsAre(
          Pair("START", ElementsAre(1)), Pair("_hparams_/session_end_info", ElementsAre(25)),
          Pair("_hparams_/session_start_info", ElementsAre(0)), Pair("d_loss", ElementsAre(10, 20)),
          Pair("epoch_loss", ElementsAre(20)), Pair("examples_per_second", ElementsAre(10, 20)),
          Pair("final/train/loss", ElementsAre(25)), Pair("gradient_norm/adam", ElementsAre(12)),
          Pair("input_wait_share", ElementsAre(10, 20)), Pair("job", ElementsAre(0)),
          Pair("learning_rate", ElementsAre(10, 20)),
          Pair("learning_rate/adam", ElementsAre(10, 20)),
          Pair("learning_rate/sgd", ElementsAre(10, 20)), Pair("loss", ElementsAre(10, 20)),
          Pair("model", ElementsAre(0))));
  // Nothing was written to the others.
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/run/validation"));
  const Json result = ReadJson("result.json");
  EXPECT_EQ(result["status"], "completed");
  EXPECT_EQ(result["steps"], 25);
  EXPECT_EQ(result["generations"], 1);
  EXPECT_EQ(result["examples"], 25 * 64);
  EXPECT_TRUE(result["hardware"].contains("cpu"));
}

// Every step of the second epoch is skipped, from its second one on; it has 20.
TEST_F(Publishing, SaysRarelyThatStepsAreSkippedInFloat16) {
  const auto publisher = Begun();
  InitLogging("");
  ::testing::internal::CaptureStderr();
  publisher->OnStart({.num_replicas = 1, .loss_scale = LossScaleReport{65536, 0, false}});
  LossScaleReport scale{65536, 0, false};
  for (int64_t step = 1; step <= 45; ++step) {
    scale.skipped = step > 21 && step <= 40;
    if (scale.skipped) {
      ++scale.skipped_steps;
      scale.scale = std::max(1.0, scale.scale / 2);
    }
    StepReport report = Step(step);
    report.loss_scale = scale;
    publisher->OnStep(report);
    if (step % 20 == 0)
      publisher->OnEpoch({.split = "train", .epoch = step / 20 - 1, .step = step});
  }
  publisher->OnEpoch({.split = "train", .epoch = 2, .step = 45});
  ASSERT_TRUE(publisher->Finish(absl::OkStatus()).ok());
  FlushLog();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log,
              HasSubstr("step 22 is skipped: its float16 gradients are not finite, as those of "
                        "the first steps of a run often are"));
  EXPECT_THAT(log, HasSubstr("step 31 is skipped: its float16 gradients are not finite (10 "
                             "steps by now); the loss scale is 64 now"));
  EXPECT_THAT(log, HasSubstr("step 37 is skipped: its float16 gradients are not finite, and "
                             "the loss scale is at its minimum, 1; 20 skipped steps in a row end "
                             "the job"));
  EXPECT_THAT(log, HasSubstr("epoch 2: 19 of 20 steps were skipped (float16); the loss scale is "
                             "1"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 4) << log;
  EXPECT_THAT(Summaries(), ::testing::Contains(Pair("loss_scale", ElementsAre(10, 20, 30, 40))));
  EXPECT_THAT(Summaries(), ::testing::Contains(Pair("skipped_steps", ElementsAre(10, 20, 30, 40))));
  EXPECT_EQ(ReadJson("result.json")["float16"], Json({{"loss_scale", 1.0}, {"skipped_steps", 19}}));
}

// A chief that was lost after it had committed step 20, and logged less than that or all of it.
TEST_F(Publishing, ASuccessorLogsTheStepThatTheLostChiefDidNot) {
  for (const int64_t logged : {19, 20}) {
    {
      const auto lost = Begun();
      lost->OnStart({.epochs = 3});
      for (int64_t step = 1; step <= logged; ++step) lost->OnStep(Step(step));
      if (logged == 20)
        lost->OnEpoch({.split = "train", .epoch = 0, .step = 20, .metrics = {{"loss", 0.5}}});
    }
    const auto successor = Begun(true);
    StartReport start{.epochs = 3, .start_step = 20};
    start.last_step = Step(20);
    start.train_metrics = {{"loss", 0.5}};
    successor->OnStart(start);
    successor->OnStart(start);  // the next generation, from the same state
    for (int64_t step = 21; step <= 30; ++step) successor->OnStep(Step(step));
    ASSERT_TRUE(successor->Finish(absl::OkStatus()).ok());
    const auto found = Summaries();
    EXPECT_THAT(found.at("loss"), ElementsAre(10, 20, 30)) << "logged: " << logged;
    EXPECT_THAT(found.at("epoch_loss"), ElementsAre(20)) << "logged: " << logged;
    std::filesystem::remove_all(folder_ + "/run");
  }
}

// The lost chief had made the passes of step 20 with the others, and had reported none, one, or
// both.
TEST_F(Publishing, ASuccessorLogsThePassesThatTheLostChiefDidNot) {
  const EpochReport validation{.split = "validation", .step = 20, .metrics = {{"loss", 0.25}}};
  const EpochReport test{.split = "test", .step = 20, .metrics = {{"loss", 0.125}}};
  for (const int logged : {0, 1, 2}) {
    {
      const auto lost = Begun();
      lost->OnStart({.epochs = 3});
      lost->OnEpoch({.split = "validation", .step = 10, .metrics = {{"loss", 0.75}}});
      for (int64_t step = 1; step <= 20; ++step) lost->OnStep(Step(step));
      if (logged > 0) lost->OnEpoch(validation);
      if (logged > 1) lost->OnEpoch(test);
    }
    const auto successor = Begun(true);
    StartReport start{.epochs = 3, .start_step = 20};
    start.last_step = Step(20);
    start.passes = {validation, test};
    successor->OnStart(start);
    successor->OnStart(start);  // the next generation, from the same state
    ASSERT_TRUE(successor->Finish(absl::OkStatus()).ok());
    EXPECT_THAT(Summaries("validation").at("epoch_loss"), ElementsAre(10, 20)) << logged;
    EXPECT_THAT(Summaries("test").at("epoch_loss"), ElementsAre(20)) << logged;
    EXPECT_EQ(ReadJson("result.json")["metrics"]["validation"]["loss"], 0.25);
    EXPECT_EQ(ReadJson("result.json")["metrics"]["test"]["loss"], 0.125);
    EXPECT_EQ(ReadJson("result.json")["metric_steps"]["test"], 20);
    std::filesystem::remove_all(folder_ + "/run");
  }
}

// A checkpoint's state is behind what a chief logged, and nobody knows its step's loss.
TEST_F(Publishing, ASuccessorFillsInNothingThatNobodyTells) {
  { (void)Begun(); }
  const auto successor = Begun(true);
  successor->OnStart({.epochs = 3, .start_step = 20});
  // ... nor a step that has no point.
  StartReport start{.epochs = 3, .start_step = 25};
  start.last_step = Step(25);
  successor->OnStart(start);
  ASSERT_TRUE(successor->Finish(absl::OkStatus()).ok());
  EXPECT_FALSE(Summaries().contains("loss"));
  EXPECT_FALSE(Summaries().contains("epoch_loss"));
}

TEST_F(Publishing, ShowsProgress) {
  const auto publisher = Begun();
  publisher->OnStart({.num_replicas = 2, .epochs = 3});
  publisher->OnStep(Step(21));
  publisher->OnEvaluateProgress("validation", 3, 10);
  publisher->OnEpoch({.split = "validation",
                      .epoch = 1,
                      .examples = 100,
                      .metrics = {{"loss", 0.5}},
                      .seconds = 2});
  ASSERT_TRUE(publisher->Finish(absl::OkStatus()).ok());
  ASSERT_EQ(states_.size(), 4u);
  const ProgressState& step = states_[0];
  EXPECT_EQ(step.kind, Kind::kStep);
  EXPECT_EQ(step.epoch, 1);
  EXPECT_EQ(step.epochs, 3);
  EXPECT_EQ(step.done, 1);
  EXPECT_EQ(step.total, 20);
  EXPECT_NEAR(step.examples_per_second, 640, 1e-6);
  EXPECT_NEAR(step.wait_share, 0.2, 1e-6);
  EXPECT_NEAR(step.seconds_left, 39 * 0.1, 1e-6);
  EXPECT_THAT(step.metrics, ElementsAre(Pair("accuracy", 0.5), Pair("d_loss", 2.0),
                                        Pair("loss", testing::DoubleEq(1.0 / 21))));
  EXPECT_EQ(states_[1].kind, Kind::kEvaluate);
  EXPECT_EQ(states_[1].split, "validation");
  EXPECT_EQ(states_[1].done, 3);
  EXPECT_EQ(states_[2].kind, Kind::kEpoch);
  EXPECT_EQ(states_[2].examples_per_second, 50);
  EXPECT_EQ(states_[3].kind, Kind::kEnd);
}

TEST_F(Publishing, ShowsWhatOfAnEpochWasWaitingForInput) {
  std::string logged;
  const auto publisher = Begun();
  InitLogging("");
  publisher->OnStart({.num_replicas = 1, .epochs = 3});
  for (int64_t step = 1; step <= 60; ++step) {
    StepReport report = Step(step);
    if (step > 20) report.input_seconds = step <= 40 ? 0.09 : 0;
    publisher->OnStep(report);
    if (step % 20 != 0) continue;
    testing::internal::CaptureStderr();
    publisher->OnEpoch({.split = "train", .epoch = step / 20 - 1, .step = step});
    FlushLog();
    logged += testing::internal::GetCapturedStderr();
  }
  publisher->OnEpoch({.split = "validation", .epoch = 2, .step = 60});
  std::vector<double> shares;
  for (const ProgressState& state : states_)
    if (state.kind == Kind::kEpoch) shares.push_back(state.input_share);
  EXPECT_THAT(shares, ElementsAre(testing::DoubleNear(0.25, 1e-9), testing::DoubleNear(0.9, 1e-9),
                                  testing::DoubleNear(0, 1e-9), -1));
  // 0.25 s in the first epoch are not worth a word; the second epoch is the first to be named.
  EXPECT_THAT(logged, HasSubstr("epoch 2: 90 % of the time of steps is spent waiting for input"));
  EXPECT_THAT(logged, Not(HasSubstr("epoch 1:")));
}

TEST_F(Publishing, VoidsTheStepsThatAreDoneAgain) {
  const auto publisher = Begun();
  publisher->OnStart({});
  for (int64_t step = 1; step <= 20; ++step) publisher->OnStep(Step(step));
  publisher->OnStart({.start_step = 20});  // another generation, nothing was lost: one file
  for (int64_t step = 21; step <= 30; ++step) publisher->OnStep(Step(step));
  publisher->OnStart({.start_step = 15});
  for (int64_t step = 16; step <= 20; ++step) publisher->OnStep(Step(step));
  ASSERT_TRUE(publisher->Finish(PeerLost("worker 1 was lost")).ok());
  const auto summaries = Summaries();
  EXPECT_THAT(summaries.at("START"), ElementsAre(1, 16));
  EXPECT_THAT(summaries.at("loss"), ElementsAre(10, 20, 20, 30));
  EXPECT_EQ(ReadJson("result.json")["cause"], "worker 1 was lost");
  EXPECT_EQ(ReadJson("result.json")["generations"], 3);
}

TEST_F(Publishing, DescribesJobAndModel) {
  const auto publisher = Begun();
  publisher->OnStart({.parameter_counts = {{"convnet", 1234881}, {"other", 0}},
                      .parameters = {{"convnet", "dense.weight", {1000, 1234}},
                                     {"convnet", "dense.bias", {880}, /*trainable=*/false},
                                     {"convnet", "scale", {}}}});
  EXPECT_THAT(TextOf("job"), HasSubstr("```json\n{\n  \"program\": \"linear\"\n}\n```"));
  const std::string model = TextOf("model");
  EXPECT_THAT(model, HasSubstr("| convnet | dense.weight | 1000 x 1234 | 1,234,000 | yes |\n"));
  EXPECT_THAT(model, HasSubstr("| convnet | dense.bias | 880 | 880 | no |\n"));
  EXPECT_THAT(model, HasSubstr("| convnet | scale | scalar | 1 | yes |\n"));
  EXPECT_THAT(model, HasSubstr("\n1,234,881 parameters, of which 1,234,001 are trained.\n"
                               "\n- convnet: 1,234,881\n- other: 0\n"));
}

TEST_F(Publishing, WritesEachPassToItsFolder) {
  const auto publisher = Begun();
  publisher->OnStart({});
  const std::vector<uint8_t> pixels(2 * 3 * 5);
  for (const char* split : {"train", "validation", "test"}) {
    publisher->OnEpoch({.split = split, .step = 20, .metrics = {{"loss", 1}, {"accuracy", 0.5}}});
  }
  publisher->OnImages("validation", {"input", 20, 2, 3, 5, 1, pixels});
  publisher->OnHistogram("train", {"weights", 20, summary::DistributionOf({1, 2, NAN})});
  publisher->OnEvaluation(20, {{"accuracy", 0.75}});
  publisher->OnEvaluation(20, {{"accuracy", 0.75}});  // an evaluator that was started again
  publisher->OnSave(20);
  EXPECT_THAT(Summaries("validation"),
              ElementsAre(Pair("START", ElementsAre(1)), Pair("epoch_accuracy", ElementsAre(20)),
                          Pair("epoch_loss", ElementsAre(20)), Pair("input", ElementsAre(20))));
  EXPECT_THAT(Summaries("test"),
              ElementsAre(Pair("START", ElementsAre(1)), Pair("epoch_accuracy", ElementsAre(20)),
                          Pair("epoch_loss", ElementsAre(20))));
  EXPECT_THAT(Summaries("eval"),
              ElementsAre(Pair("START", ElementsAre(1)), Pair("epoch_accuracy", ElementsAre(20))));
  EXPECT_THAT(Summaries("train").at("weights"), ElementsAre(20));
  EXPECT_THAT(Summaries("train").at("weights/not_finite"), ElementsAre(20));
}

// The checkpoint that a chief continues from is announced again, and evaluated again.
TEST_F(Publishing, PublishesOnceAnEvaluationThatAnEarlierChiefPublished) {
  {
    const auto publisher = Begun();
    publisher->OnStart({});
    for (const int64_t step : {20, 30}) publisher->OnEvaluation(step, {{"loss", 1}});
  }
  const auto publisher = Begun(/*goes_on=*/true);
  publisher->OnEvaluation(20, {{"loss", 1}});  // before the members are there
  publisher->OnStart({.start_step = 20});
  publisher->OnEvaluation(20, {{"loss", 1}});
  EXPECT_THAT(Summaries("eval").at("epoch_loss"), ElementsAre(20, 30));
  publisher->OnEvaluation(30, {{"loss", 1}});  // earlier values of this step are discarded
  EXPECT_THAT(Summaries("eval").at("epoch_loss"), ElementsAre(20, 30, 30));
  EXPECT_THAT(Summaries("eval").at("START"), ElementsAre(1, 21));
}

// The steps from which on each folder voids what an earlier process wrote.
TEST_F(Publishing, VoidsInEachFolderWhatIsMeasuredAgain) {
  {
    const auto publisher = Begun();
    publisher->OnStart({});
    for (const char* split : {"train", "validation", "test"})
      publisher->OnEpoch({.split = split, .step = 20});
    publisher->OnEvaluation(20, {});
    publisher->OnScalars("system", {20, {{"cpu_cores/chief_0", 1}}});
  }
  const auto publisher = Begun(/*goes_on=*/true);
  publisher->OnEvaluation(20, {{"loss", 1}});  // before the members are there
  publisher->OnStart({.start_step = 20, .validation_due = true});
  EXPECT_THAT(Summaries("train").at("START"), ElementsAre(1, 21));
  EXPECT_THAT(Summaries("validation").at("START"), ElementsAre(1, 20));
  EXPECT_THAT(Summaries("test").at("START"), ElementsAre(1, 21));
  EXPECT_THAT(Summaries("eval").at("START"), ElementsAre(1, 21));
  EXPECT_THAT(Summaries("system").at("START"), ElementsAre(1, 21));
  EXPECT_THAT(Summaries("eval").at("epoch_loss"), ElementsAre(20));
  // A later generation of this process: only what lies before what was written is void.
  publisher->OnEpoch({.split = "validation", .step = 20});
  publisher->OnStart({.start_step = 20});
  EXPECT_THAT(Summaries("validation").at("START"), ElementsAre(1, 20));
  publisher->OnEpoch({.split = "test", .step = 30});
  publisher->OnStart({.start_step = 25, .test_due = true});
  EXPECT_THAT(Summaries("validation").at("START"), ElementsAre(1, 20));
  EXPECT_THAT(Summaries("test").at("START"), ElementsAre(1, 21, 25));
}

TEST_F(Publishing, FlushesAllBeforeASave) {
  const auto publisher = Begun();
  publisher->OnStart({});
  for (int64_t step = 1; step <= 20; ++step) publisher->OnStep(Step(step));
  publisher->OnSave(20);
  EXPECT_THAT(Summaries().at("loss"), ElementsAre(10, 20));
}

TEST_F(Publishing, NamesAModelDirThatCannotBe) {
  std::ofstream(folder_ + "/run") << "in the way";
  const absl::Status refused = Publisher::Open(Options())->Begin(/*goes_on=*/false);
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kConfiguration);
  EXPECT_THAT(Message(refused), HasSubstr(folder_ + "/run"));
}

TEST_F(Publishing, GoesOnWithoutSummaries) {
  std::filesystem::create_directory(folder_ + "/run");
  std::ofstream(folder_ + "/run/train") << "in the way";
  const auto publisher = Begun();
  publisher->OnStart({});
  for (int64_t step = 1; step <= 20; ++step) publisher->OnStep(Step(step));
  EXPECT_TRUE(publisher->Finish(absl::OkStatus()).ok());
  EXPECT_EQ(ReadJson("result.json")["steps"], 20);
}

TEST_F(Publishing, WritesNothingWithoutAModelDir) {
  PublisherOptions options = Options();
  options.model_dir.clear();
  options.progress = nullptr;
  const auto publisher = Publisher::Open(std::move(options));
  ASSERT_TRUE(publisher->Begin(/*goes_on=*/false).ok());
  publisher->OnStart({});
  publisher->OnStep(Step(10));
  publisher->OnEpoch({});
  publisher->OnEvaluateProgress("test", 1, 2);
  EXPECT_TRUE(publisher->Finish(absl::OkStatus()).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/run"));
}

TEST_F(Publishing, LeavesAnEarlierVerdictUntilTrainingBegins) {
  ASSERT_TRUE(Begun()->Finish(absl::OkStatus()).ok());
  ASSERT_EQ(ReadJson("result.json")["status"], "completed");

  PublisherOptions options = Options();
  options.job = {{"program", "another"}};
  const auto refused = Publisher::Open(std::move(options));
  EXPECT_TRUE(refused->Finish(ConfigurationError("program differs")).ok());
  EXPECT_EQ(ReadJson("result.json")["status"], "completed");
  EXPECT_EQ(ReadJson("job.json")["program"], "linear");

  const auto continues = Begun();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/run/result.json"));
}

TEST_F(Publishing, WritesTheVerdictOfAJobThatNeverBegan) {
  std::filesystem::create_directory(folder_ + "/run");
  const auto publisher = Publisher::Open(Options());
  EXPECT_TRUE(publisher->Finish(PeerLost("worker 1 did not join")).ok());
  EXPECT_EQ(ReadJson("result.json")["cause"], "worker 1 did not join");
}

TEST_F(Publishing, AddsToTheNumbersOfAnInterruptedRun) {
  {
    const auto publisher = Begun();
    publisher->OnStart({.steps_per_epoch = 20});
    for (int64_t step = 1; step <= 25; ++step) publisher->OnStep(Step(step));
    publisher->OnEpoch({.split = "train", .epoch = 0, .step = 20, .metrics = {{"loss", 0.5}}});
    publisher->OnEpoch({.split = "validation", .step = 20, .metrics = {{"loss", 0.75}}});
    ASSERT_TRUE(publisher->Finish(Preempted("SIGTERM")).ok());
  }
  const auto publisher = Begun(/*goes_on=*/true);
  publisher->OnStart({.steps_per_epoch = 20, .start_step = 25, .start_examples = 25 * 64});
  for (int64_t step = 26; step <= 30; ++step) publisher->OnStep(Step(step));
  publisher->OnEpoch({.split = "validation", .step = 30, .metrics = {{"loss", 0.25}}});
  ASSERT_TRUE(publisher->Finish(absl::OkStatus()).ok());
  const Json result = ReadJson("result.json");
  EXPECT_EQ(result["steps"], 30);
  EXPECT_EQ(result["examples"], 30 * 64);
  EXPECT_EQ(result["epochs"], 2);
  EXPECT_EQ(result["metrics"]["train"]["loss"], 0.5);
  EXPECT_EQ(result["metrics"]["validation"]["loss"], 0.25);
}

TEST_F(Publishing, WritesNothingOnceSuperseded) {
  PublisherOptions options = Options();
  absl::Status owned;
  options.fence = [&owned] { return owned; };
  const auto publisher = Publisher::Open(std::move(options));
  ASSERT_TRUE(publisher->Begin(/*goes_on=*/false).ok());
  publisher->OnStart({});
  owned = Superseded("taken by another chief");
  EXPECT_EQ(publisher->Finish(PeerLost("worker 1 was lost")), owned);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/run/result.json"));
}

}  // namespace
}  // namespace muster::chief
