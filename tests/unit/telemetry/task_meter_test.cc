#include "common/telemetry/task_meter.h"

#include <gmock/gmock.h>

#include <thread>

namespace muster {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pair;

class TaskMeterTest : public ::testing::Test {
 protected:
  // Trains one step: input, the program's code, a wait for others, the update.
  void Step(int64_t step, double data, double forward, double reduce, double update = 0) {
    Enter(Phase::kData, step, data);
    Enter(Phase::kForward, step, forward);
    Enter(Phase::kReduce, step, reduce);
    Enter(Phase::kUpdate, step, update);
    meter_.AddExamples(32);
    meter_.AddStep(reduce, data, now_);
  }
  void Enter(Phase phase, int64_t step, double seconds) {
    meter_.EnterPhase(phase, step, now_);
    now_ += FromSeconds(seconds);
  }
  double LocalStep() { return meter_.Stats(now_).local_step_seconds(); }

  const MonotonicTime start_{std::chrono::seconds(1000)};
  MonotonicTime now_ = start_;
  TaskMeter meter_{start_};
};

TEST_F(TaskMeterTest, AddsUpPhasesAndSteps) {
  for (int step = 1; step <= 10; ++step) Step(step, 0.01, 0.05, 0.03, 0.01);
  const proto::TaskStats stats = meter_.Stats(now_);
  EXPECT_EQ(stats.steps(), 10);
  EXPECT_EQ(stats.examples(), 320);
  ASSERT_EQ(stats.phase_seconds_size(), kNumPhases);
  EXPECT_NEAR(stats.phase_seconds(static_cast<int>(Phase::kData)), 0.1, 1e-6);
  EXPECT_NEAR(stats.phase_seconds(static_cast<int>(Phase::kForward)), 0.5, 1e-6);
  EXPECT_NEAR(stats.phase_seconds(static_cast<int>(Phase::kReduce)), 0.3, 1e-6);
  EXPECT_NEAR(stats.phase_seconds(static_cast<int>(Phase::kUpdate)), 0.1, 1e-6);
  EXPECT_NEAR(stats.input_wait_seconds(), 0.1, 1e-6);
  EXPECT_NEAR(stats.peer_wait_seconds(), 0.3, 1e-6);
  EXPECT_NEAR(stats.steps_per_second(), 10, 1e-6);
  EXPECT_NEAR(stats.examples_per_second(), 320, 1e-3);
  EXPECT_NEAR(stats.wait_share(), 0.3, 1e-6);
  EXPECT_NEAR(stats.input_share(), 0.1, 1e-6);
  EXPECT_THAT(meter_.phase(), Pair(Phase::kUpdate, 10));
}

TEST_F(TaskMeterTest, TheCurrentPhaseCountsUpToNow) {
  meter_.EnterPhase(Phase::kSave, 3, now_);
  now_ += std::chrono::seconds(2);
  EXPECT_NEAR(meter_.Stats(now_).phase_seconds(static_cast<int>(Phase::kSave)), 2, 1e-6);
  EXPECT_NEAR(meter_.Stats(now_).phase_seconds(static_cast<int>(Phase::kSave)), 2, 1e-6);
}

TEST_F(TaskMeterTest, LocalTimeIsThatBeforeTheFirstWaitOfAStep) {
  for (int step = 1; step <= 5; ++step) {
    Enter(Phase::kData, step, 0.01);
    Enter(Phase::kForward, step, 0.05);
    Enter(Phase::kReduce, step, 0.5);   // Waits for a slower one.
    Enter(Phase::kForward, step, 0.2);  // A second reduction of the same step.
    Enter(Phase::kReduce, step, 0.1);
    meter_.AddStep(0.6, 0, now_);
  }
  // Time after the first wait counts for the next step.
  EXPECT_THAT(LocalStep(), DoubleNear(0.26, 1e-6));
}

TEST_F(TaskMeterTest, OneSlowStepDoesNotChangeTheLocalTime) {
  for (int step = 1; step <= 5; ++step) Step(step, 0, 0.1, 0);
  Step(6, 0, 30, 0);
  EXPECT_THAT(LocalStep(), DoubleNear(0.1, 1e-6));
  for (int step = 7; step <= 8; ++step) Step(step, 0, 30, 0);
  EXPECT_THAT(LocalStep(), DoubleNear(30, 1e-6));
}

TEST_F(TaskMeterTest, SavesAndPassesAreNotLocalTime) {
  for (int step = 1; step <= 5; ++step) {
    Step(step, 0, 0.1, 0.01);
    Enter(Phase::kSave, step + 1, 1);
    Enter(Phase::kEvaluate, step + 1, 2);
  }
  EXPECT_THAT(LocalStep(), DoubleNear(0.1, 1e-6));
}

TEST_F(TaskMeterTest, ANewGenerationForgetsLocalTimes) {
  for (int step = 1; step <= 5; ++step) Step(step, 0, 3, 0);
  Enter(Phase::kForming, 6, 1);
  EXPECT_EQ(LocalStep(), 0);
}

TEST_F(TaskMeterTest, RatesEndWithTheSteps) {
  for (int step = 1; step <= 100; ++step) Step(step, 0, 0.1, 0);
  EXPECT_NEAR(meter_.Stats(now_).steps_per_second(), 10, 1e-6);
  now_ += std::chrono::seconds(6);
  const proto::TaskStats stats = meter_.Stats(now_);
  EXPECT_EQ(stats.steps_per_second(), 0);
  EXPECT_LT(stats.wait_share(), 0);
  EXPECT_EQ(stats.local_step_seconds(), 0);
  EXPECT_EQ(stats.steps(), 100);
}

TEST_F(TaskMeterTest, CountsWhatServersDo) {
  now_ += std::chrono::seconds(1);
  meter_.AddUpdates(20, now_);
  now_ += std::chrono::seconds(1);
  meter_.AddUpdates(20, now_);
  for (int i = 0; i < 100; ++i) meter_.AddStaleness(3);
  const proto::TaskStats stats = meter_.Stats(now_);
  EXPECT_EQ(stats.steps(), 40);
  EXPECT_NEAR(stats.steps_per_second(), 20, 1e-6);
  EXPECT_NEAR(stats.staleness(), 3, 0.01);
}

TEST_F(TaskMeterTest, TellsOfTheRest) {
  meter_.AddGeneration();
  meter_.AddCheckpoint();
  meter_.AddCheckpoint();
  meter_.SetRestarts(3);
  meter_.traffic()->tcp.Add(10, 20);
  meter_.traffic()->shared_memory.Add(30, 40);
  meter_.traffic()->nccl.Add(50, 60);
  EXPECT_FALSE(meter_.Stats(now_).has_push_losses());
  proto::PushLosses losses;
  losses.set_torn_pushes(4);
  meter_.SetPushLosses(losses);
  SystemStats system;
  system.cpu_cores = 1.5;
  system.rss_bytes = 7;
  system.gpus.emplace_back().set_index(2);
  meter_.SetSystem(system);
  meter_.SetStraggler("worker:1", true);
  const proto::TaskStats stats = meter_.Stats(now_);
  EXPECT_EQ(stats.generations(), 1);
  EXPECT_EQ(stats.checkpoints(), 2);
  EXPECT_EQ(stats.restarts(), 3);
  EXPECT_EQ(stats.bytes_sent(), 10);
  EXPECT_EQ(stats.bytes_received(), 20);
  EXPECT_EQ(stats.shared_memory_bytes_sent(), 30);
  EXPECT_EQ(stats.shared_memory_bytes_received(), 40);
  EXPECT_EQ(stats.nccl_bytes_sent(), 50);
  EXPECT_EQ(stats.nccl_bytes_received(), 60);
  EXPECT_EQ(stats.push_losses().torn_pushes(), 4);
  EXPECT_EQ(stats.cpu_cores(), 1.5);
  EXPECT_EQ(stats.rss_bytes(), 7);
  ASSERT_EQ(stats.gpus_size(), 1);
  EXPECT_EQ(stats.gpus(0).index(), 2);
  EXPECT_THAT(meter_.stragglers(), ElementsAre(Pair("worker:1", true)));
}

TEST_F(TaskMeterTest, ReadsTheQueuesThatThereAre) {
  EXPECT_EQ(meter_.Stats(now_).input_queues_size(), 0);
  const auto train = meter_.InputQueue("train");
  EXPECT_EQ(meter_.InputQueue("train"), train);
  meter_.InputQueue("noise");
  EXPECT_EQ(meter_.Stats(now_).input_queues_size(), 0) << "without a capacity there is no queue";
  {
    data::QueuePart one(train), other(train);
    one.SetCapacity(4);
    one.SetReady(3);
    other.SetCapacity(2);
    other.AddReady(1);
    other.AddReady(-1);
    *meter_.chunks_in_flight() = 9;
    const proto::TaskStats stats = meter_.Stats(now_);
    ASSERT_EQ(stats.input_queues_size(), 1);
    EXPECT_EQ(stats.input_queues(0).dataset(), "train");
    EXPECT_EQ(stats.input_queues(0).ready(), 3);
    EXPECT_EQ(stats.input_queues(0).capacity(), 6);
    EXPECT_EQ(stats.chunks_in_flight(), 9);
  }
  EXPECT_EQ(meter_.Stats(now_).input_queues_size(), 0) << "its pipelines are gone";
}

TEST_F(TaskMeterTest, ManyThreadsFeedIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        meter_.AddExamples(1);
        meter_.EnterPhase(Phase::kForward, i);
        (void)meter_.Stats();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(meter_.Stats().examples(), 4000);
}

}  // namespace
}  // namespace muster
