#include "deploy/launcher/report.h"

#include <gmock/gmock.h>

namespace muster::launcher {
namespace {

using testing::ElementsAre;

LaunchState State(ExitReport chief, ExitReport worker) {
  LaunchState state;
  const auto plan = PlanCluster({.workers = 1}, {1, 2});
  state.tasks = {{plan[0], true, chief}, {plan[1], true, worker}};
  return state;
}

TEST(Report, SaysWhereTheResultIs) {
  const LaunchState state = State({0}, {0});
  LaunchOutcome outcome = {
      .verdict = VerdictOf(state), .elapsed = std::chrono::seconds(83), .model_dir = "runs/a"};
  outcome.result = {
      {"metrics", {{"test", {{"accuracy", 0.90514}, {"loss", 0.25}}}, {"train", nullptr}}}};
  EXPECT_THAT(
      Report(state, outcome),
      ElementsAre("completed in 1:23, exit code 0", "test accuracy 0.9051, test loss 0.2500",
                  "result in runs/a/result.json, logs in runs/a/logs"));
}

TEST(Report, SaysWhereTheCheckpointsAre) {
  const LaunchState state = State({0}, {0});
  LaunchOutcome outcome = {.verdict = VerdictOf(state), .model_dir = "runs/a"};
  outcome.result = {{"checkpoint", "checkpoints/step-00000500"}, {"best_checkpoint", nullptr}};
  const auto said = [&] { return Report(state, outcome).at(1); };  // what is next comes later
  EXPECT_EQ(said(), "checkpoint runs/a/checkpoints/step-00000500");
  outcome.result["best_checkpoint"] = "checkpoints/step-00000400";
  EXPECT_EQ(said(),
            "checkpoint runs/a/checkpoints/step-00000500, the best one "
            "runs/a/checkpoints/step-00000400");
  outcome.result["checkpoint"] = "checkpoints/step-00000400";
  EXPECT_EQ(said(), "checkpoint runs/a/checkpoints/step-00000400, the best one");
}

TEST(Report, SaysHowGoodTheBestOneIsAndWhatTheTimeWentTo) {
  const LaunchState state = State({0}, {0});
  LaunchOutcome outcome = {.verdict = VerdictOf(state), .model_dir = "runs/a"};
  outcome.result = {{"checkpoint", "checkpoints/step-00000500"},
                    {"best_checkpoint", "checkpoints/step-00000400"},
                    {"best", {{"metric", "loss"}, {"value", 0.25}}},
                    {"examples_per_second", 41230.7},
                    {"step_seconds", {{"compute", 0.00131}, {"wait", 0.00022}, {"input", 0.0}}}};
  EXPECT_THAT(Report(state, outcome),
              ElementsAre("completed in 0:00, exit code 0",
                          "41,230 examples/s; a step computes for 1.31 ms, waits for others 0.22 "
                          "ms and for data 0.00 ms",
                          "checkpoint runs/a/checkpoints/step-00000500, the best one "
                          "runs/a/checkpoints/step-00000400 (loss 0.2500)",
                          "result in runs/a/result.json, logs in runs/a/logs",
                          "next: muster export --checkpoint "
                          "runs/a/checkpoints/step-00000400 --output weights.safetensors"));
  outcome.result["best"] = nullptr;
  outcome.result["step_seconds"] = nullptr;
  EXPECT_EQ(Report(state, outcome).size(), 4u);
}

TEST(Report, SaysWhatTheBestOneMeasured) {
  const LaunchState state = State({0}, {0});
  LaunchOutcome outcome = {.verdict = VerdictOf(state), .model_dir = "runs/a"};
  outcome.result = {
      {"best", {{"metric", "loss"}, {"value", 0.25}, {"metrics", {{"loss", 0.25}, {"f1", 0.5}}}}}};
  EXPECT_EQ(Report(state, outcome).at(1), "the best one: f1 0.5000, loss 0.2500");
  outcome.result["best"]["metrics"].erase("f1");  // the line of the checkpoints says it all
  EXPECT_EQ(Report(state, outcome).at(1), "result in runs/a/result.json, logs in runs/a/logs");
  outcome.logs = false;  // model_dir is on another host, and cannot be made here.
  EXPECT_EQ(Report(state, outcome).at(1), "result in runs/a/result.json");
}

TEST(Report, SaysWhatToTypeNext) {
  const LaunchState done = State({0}, {0});
  LaunchOutcome outcome = {.verdict = VerdictOf(done), .model_dir = "runs/a b"};
  outcome.program = "build/bin/muster";
  outcome.job = {"--job", "it's.json", "--set", "data.train={\"x\": 1}"};
  outcome.result = {{"checkpoint", "checkpoints/step-00000500"},
                    {"best_checkpoint", nullptr},
                    {"metrics", {{"validation", {{"loss", 0.25}}}}}};
  const auto last = [&](const LaunchState& state) {
    const auto lines = Report(state, outcome);
    return std::vector<std::string>(lines.end() - 2, lines.end());
  };
  EXPECT_THAT(last(done), ElementsAre("next: build/bin/muster evaluate --job 'it'\\''s.json' --set "
                                      "'data.train={\"x\": 1}'",
                                      "      build/bin/muster export --checkpoint 'runs/a "
                                      "b/checkpoints/step-00000500' --output weights.safetensors"));
  outcome.result["best_checkpoint"] = "checkpoints/step-00000400";
  EXPECT_THAT(last(done)[0], testing::EndsWith(" --checkpoint best"));
  EXPECT_THAT(last(done)[1], testing::HasSubstr("step-00000400"));

  const LaunchState lost = State({138}, {137, 9});
  outcome.verdict = VerdictOf(lost);
  EXPECT_THAT(last(lost),
              ElementsAre("next: the same command continues from checkpoints/step-00000500",
                          "      build/bin/muster explain 'runs/a b'"));
  const LaunchState failed = State({2}, {2});
  outcome.verdict = VerdictOf(failed);
  EXPECT_THAT(last(failed)[1], testing::StartsWith("result in"));  // no command helps
}

TEST(Report, RepeatsTheRootCause) {
  const LaunchState state = State({138}, {137, 9});
  LaunchOutcome outcome = {.verdict = VerdictOf(state), .elapsed = std::chrono::seconds(2)};
  outcome.root_cause = "ROOT CAUSE: worker 0 on host a was lost";
  const auto lines = Report(state, outcome);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], testing::StartsWith("failed after 0:02, exit code 138: chief 0 exited"));
  EXPECT_THAT(lines[1], testing::HasSubstr("worker 0 was killed by SIGKILL"));
  EXPECT_EQ(lines[2], outcome.root_cause);
}

TEST(Report, CallsAPreemptedRunSo) {
  const LaunchState state = State({143}, {143});
  const auto lines = Report(state, {.verdict = VerdictOf(state)});
  EXPECT_THAT(lines[0], testing::StartsWith("preempted after 0:00, exit code 143"));
}

TEST(Report, SaysWhatWasStartedAgain) {
  LaunchState state = State({0}, {0});
  state.tasks[0].restarts = 1;
  state.tasks[1].restarts = 3;
  const auto lines = Report(state, {.verdict = VerdictOf(state)});
  EXPECT_EQ(lines[1], "started again: chief 0 once, worker 0 3 times");
}

TEST(Report, SaysWhoWasLostOnTheWayToAGoodEnd) {
  const LaunchState state = State({0}, {137, 9});
  const auto lines = Report(state, {.verdict = VerdictOf(state)});
  EXPECT_EQ(lines[1], "lost during training: worker 0 was killed by SIGKILL");
}

TEST(Report, SaysWhereInputHoldsTrainingUp) {
  const LaunchState state = State({0}, {0});
  LaunchOutcome outcome = {.verdict = VerdictOf(state)};
  outcome.result = {{"input_wait_share", 0.34}, {"wall_seconds", 60.0}};
  EXPECT_THAT(Report(state, outcome),
              ElementsAre("completed in 0:00, exit code 0",
                          "34 % of the time of steps went to waiting for input: see data.threads, "
                          "data.prefetch and cache in docs/data.md"));
  outcome.result["wall_seconds"] = 2.0;
  EXPECT_THAT(Report(state, outcome), testing::SizeIs(1));
  outcome.result = {{"input_wait_share", 0.09}, {"wall_seconds", 60.0}};
  EXPECT_THAT(Report(state, outcome), testing::SizeIs(1));
}

}  // namespace
}  // namespace muster::launcher
