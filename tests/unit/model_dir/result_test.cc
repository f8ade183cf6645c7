#include "chief/model_dir/result.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace muster::chief {
namespace {

using testing::HasSubstr;

TEST(SteadySeries, LeavesTheWarmUpOut) {
  SteadySeries series;
  EXPECT_EQ(series.Median(), 0);
  for (int i = 0; i < 10; ++i) series.Add(1000);
  for (int i = 1; i <= 13; ++i) series.Add(i);
  EXPECT_EQ(series.Median(), 7);
  series.Add(14);
  EXPECT_EQ(series.Median(), 7.5);
}

TEST(SteadySeries, OfAShortRunIsItsSecondHalf) {
  SteadySeries series;
  for (double value : {100.0, 100.0, 3.0, 2.0, 1.0}) series.Add(value);
  EXPECT_EQ(series.Median(), 2);
  SteadySeries one;
  one.Add(5);
  EXPECT_EQ(one.Median(), 5);
}

TEST(SteadySeries, ThinsLongRunsEvenly) {
  SteadySeries series;
  constexpr int kSteps = 1000000;
  for (int i = 0; i < kSteps; ++i) series.Add(i);
  EXPECT_NEAR(series.Median(), kSteps / 2.0, kSteps * 1e-4);
}

TEST(RunRecord, TellsHowARunEnded) {
  RunRecord record;
  record.OnStart({.world_size = 2, .num_replicas = 4});
  for (int step = 1; step <= 40; ++step) {
    record.OnStep({.step = step,
                   .epoch = (step - 1) / 20,
                   .examples = 128,
                   .compute_seconds = 0.06,
                   .wait_seconds = 0.03,
                   .input_seconds = 0.01,
                   .total_seconds = 0.1,
                   .step_seconds = 0.1});
  }
  record.OnEpoch({.split = "train", .epoch = 0, .metrics = {{"loss", 0.5}}});
  record.OnEpoch({.split = "train", .epoch = 1, .metrics = {{"loss", 0.25}}});
  record.OnEpoch({.split = "test", .epoch = 1, .metrics = {{"accuracy", 0.9}}});
  const Json result = record.Result({.generations = 1, .wall_seconds = 12.5});
  EXPECT_EQ(result["status"], "completed");
  EXPECT_TRUE(result["cause"].is_null());
  EXPECT_EQ(result["steps"], 40);
  EXPECT_EQ(result["epochs"], 2);
  EXPECT_EQ(result["examples"], 40 * 128);
  EXPECT_EQ(result["world_size"], 2);
  EXPECT_EQ(result["num_replicas"], 4);
  EXPECT_EQ(result["generations"], 1);
  EXPECT_EQ(result["wall_seconds"], 12.5);
  EXPECT_DOUBLE_EQ(result["examples_per_second"], 1280);
  EXPECT_DOUBLE_EQ(result["step_seconds"]["compute"], 0.06);
  EXPECT_DOUBLE_EQ(result["step_seconds"]["wait"], 0.03);
  EXPECT_DOUBLE_EQ(result["step_seconds"]["input"], 0.01);
  EXPECT_NEAR(result["input_wait_share"], 0.1, 1e-9);
  EXPECT_EQ(result["metrics"]["train"]["loss"], 0.25);
  EXPECT_TRUE(result["metrics"]["validation"].is_null());
  EXPECT_EQ(result["metrics"]["test"]["accuracy"], 0.9);
  EXPECT_TRUE(result.contains("checkpoint") && result["checkpoint"].is_null());
  EXPECT_TRUE(result.contains("hardware") && result.contains("versions"));
}

TEST(RunRecord, TellsOfTheLossScaleInFloat16Alone) {
  RunRecord record;
  record.OnStart({.num_replicas = 1});
  record.OnStep({.step = 1});
  EXPECT_FALSE(record.Result({}).contains("float16"));
  record.OnStart({.num_replicas = 1, .loss_scale = LossScaleReport{0, 3, false}});
  EXPECT_EQ(record.Result({})["float16"], Json({{"loss_scale", nullptr}, {"skipped_steps", 3}}));
  record.OnStep({.step = 2, .loss_scale = LossScaleReport{512, 4, true}});
  EXPECT_EQ(record.Result({})["float16"], Json({{"loss_scale", 512.0}, {"skipped_steps", 4}}));
  // Gone on with, where nobody knows the scale.
  record.OnStart({.num_replicas = 1, .loss_scale = LossScaleReport{0, 4, false}});
  EXPECT_EQ(record.Result({})["float16"], Json({{"loss_scale", 512.0}, {"skipped_steps", 4}}));
}

TEST(RunRecord, TellsOfCheckpoints) {
  const Json result = RunRecord().Result({.checkpoints = {.newest = "checkpoints/step-00000040",
                                                          .best = "checkpoints/step-00000020",
                                                          .written = 2,
                                                          .dropped = 1,
                                                          .failed = 3,
                                                          .last_error = "no space left"}});
  EXPECT_EQ(result["checkpoint"], "checkpoints/step-00000040");
  EXPECT_EQ(result["best_checkpoint"], "checkpoints/step-00000020");
  EXPECT_EQ(result["saves"],
            Json({{"written", 2}, {"dropped", 1}, {"failed", 3}, {"last_error", "no space left"}}));
  EXPECT_TRUE(RunRecord().Result({})["saves"]["last_error"].is_null());
}

TEST(RunRecord, ForgetsWhatWasMeasuredOnALostState) {
  RunRecord record;
  record.OnStart({.steps_per_epoch = 10});
  record.OnStep({.step = 25, .epoch = 2, .examples = 1});
  record.OnEpoch({.split = "train", .step = 10, .metrics = {{"loss", 2}}});
  record.OnEpoch({.split = "validation", .step = 20, .metrics = {{"loss", 1}}});
  record.OnEvaluation(20, {{"loss", 1}});
  record.OnEvaluation(10, {{"loss", 2}});  // late: an older checkpoint's
  EXPECT_EQ(record.Result({})["metric_steps"]["eval"], 20);
  record.OnStart({.steps_per_epoch = 10, .start_step = 11, .start_examples = 110});
  const Json result = record.Result({});
  EXPECT_EQ(result["steps"], 11);
  EXPECT_EQ(result["epochs"], 2);
  EXPECT_EQ(result["examples"], 110);
  EXPECT_EQ(result["metrics"]["train"]["loss"], 2);
  EXPECT_TRUE(result["metrics"]["validation"].is_null());
  EXPECT_TRUE(result["metrics"]["eval"].is_null());
  // From a checkpoint at the end of an epoch, with nothing but passes to make.
  record.OnStart({.steps_per_epoch = 10, .start_step = 20, .train_metrics = {{"loss", 1.5}}});
  EXPECT_EQ(record.Result({})["metrics"]["train"]["loss"], 1.5);
  EXPECT_EQ(record.Result({})["metric_steps"]["train"], 20);
}

TEST(RunRecord, KeepsTheSpeedWhereNothingWasLeftToDo) {
  RunRecord first;
  first.OnStep({.step = 1, .examples = 64, .compute_seconds = 0.5, .total_seconds = 1});
  const Json earlier = first.Result({});
  RunRecord second;
  second.Continue(earlier);
  second.OnStart({.start_step = 1, .start_examples = 64});
  EXPECT_EQ(second.Result({})["examples_per_second"], 64);
  EXPECT_EQ(second.Result({})["step_seconds"]["compute"], 0.5);
  second.OnStep({.step = 2, .examples = 32, .total_seconds = 1});
  EXPECT_EQ(second.Result({})["examples_per_second"], 32);
  // Anything may lie there.
  for (const Json& odd : {Json(), Json(3), Json({{"metric_steps", "x"}}),
                          Json({{"metric_steps", {{"train", "x"}}}})}) {
    RunRecord record;
    record.Continue(odd);
    EXPECT_EQ(record.Result({})["steps"], 0);
  }
}

TEST(RunRecord, KeepsWhatTheBestOneMeasured) {
  CheckpointRecord best = {
      .best = "checkpoints/step-00000004", .best_metric = "loss", .best_value = 0.5};
  best.best_metrics = {{"loss", 0.5}, {"f1", 0.75}};
  const Json earlier = RunRecord().Result({.checkpoints = best});
  EXPECT_EQ(earlier["best"]["metrics"], Json({{"loss", 0.5}, {"f1", 0.75}}));
  best.best_metrics.clear();  // what a mark alone tells, after a restart
  RunRecord record;
  EXPECT_FALSE(record.Result({.checkpoints = best})["best"].contains("metrics"));
  record.Continue(earlier);
  EXPECT_EQ(record.Result({.checkpoints = best})["best"]["metrics"]["f1"], 0.75);
  best.best = "checkpoints/step-00000008";  // another one
  EXPECT_FALSE(record.Result({.checkpoints = best})["best"].contains("metrics"));
}

TEST(RunRecord, NamesTheCauseOfAFailure) {
  const RunRecord record;
  const Json failed = record.Result({.verdict = PeerLost("worker 1 was lost")});
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_EQ(failed["cause"], "worker 1 was lost");
  EXPECT_EQ(failed["steps"], 0);
  EXPECT_EQ(record.Result({.verdict = Preempted("SIGTERM")})["status"], "preempted");
}

TEST(Hardware, IsThatOfThisHost) {
  const Json hardware = HardwareOfThisHost();
  EXPECT_FALSE(hardware["host"].get<std::string>().empty());
  EXPECT_GE(hardware["cores"], 1);
  EXPECT_GT(hardware["memory_bytes"], 1 << 20);
  EXPECT_THAT(OwnVersions()["muster"].get<std::string>(), HasSubstr("."));
}

TEST(InputWait, IsThatOfAllStepsTogetherButTheFirst) {
  InputWait wait;
  EXPECT_FALSE(wait.any());
  EXPECT_EQ(wait.Share(), 0);
  // The pipeline is filled; of a short run that is all there is.
  for (int i = 0; i < 10; ++i) wait.Add({.input_seconds = 0.9, .step_seconds = 1});
  EXPECT_NEAR(wait.Share(), 0.9, 1e-9);
  // A burst every tenth step: no median shows it.
  for (int i = 0; i < 100; ++i)
    wait.Add({.input_seconds = i % 10 == 0 ? 1.0 : 0.0, .step_seconds = i % 10 == 0 ? 1.1 : 0.1});
  EXPECT_NEAR(wait.Share(), 0.5, 1e-9);
  EXPECT_NEAR(wait.Seconds(), 10, 1e-9);
}

TEST(InputWait, IsNotLostWhereARunGoesOn) {
  RunRecord first;
  first.OnStep({.step = 1, .input_seconds = 0.25, .total_seconds = 1, .step_seconds = 1});
  RunRecord second;
  second.Continue(first.Result({}));
  EXPECT_EQ(second.Result({})["input_wait_share"], 0.25);
  // The result of a version that did not report this.
  Json earlier = first.Result({});
  earlier.erase("input_wait_share");
  RunRecord third;
  third.Continue(earlier);
  EXPECT_EQ(third.Result({})["input_wait_share"], 0);
}

TEST(InputWait, HintNamesWhatTheJobCanRaise) {
  EXPECT_THAT(InputWaitHint(0.34, nullptr),
              AllOf(HasSubstr("34 % of the time of steps is spent waiting for input"),
                    HasSubstr("give the loader more cores")));
  const Json data = {{"threads", 2}, {"prefetch", 0}, {"train", {{"format", "npy"}}}};
  EXPECT_THAT(InputWaitHint(0.5, data),
              AllOf(HasSubstr("raise data.threads from 2 or set it to \"auto\""),
                    HasSubstr("raise data.prefetch from 0"), HasSubstr("set data.train.cache")));
  EXPECT_THAT(InputWaitHint(0.5, {{"train", {{"cache", "memory"}}}}),
              HasSubstr("give the loader more cores"));
}

}  // namespace
}  // namespace muster::chief
