#include "deploy/report/split.h"

#include <gmock/gmock.h>

namespace muster::report {
namespace {

using testing::IsEmpty;

constexpr uint64_t kFirst = (uint64_t{1} << 32) + 1;

FlightRecord RecordOf(const std::string& task, int64_t steps) {
  FlightRecord record;
  record.header.task = task;
  record.header.generation = kFirst;
  double now = 10;
  const auto add = [&](Phase phase, int64_t step, double seconds) {
    record.events.push_back({.monotonic = now, .phase = phase, .generation = kFirst, .step = step});
    now += seconds;
  };
  for (int64_t step = 1; step <= steps; ++step) {
    const double slow = step == 1 || step == steps ? 100 : 1;  // Not whole: left out.
    add(Phase::kData, step, 0.01 * slow);
    add(Phase::kForward, step, 0.03 * slow);
    add(Phase::kReduce, step, 0.02 * slow);
    add(Phase::kUpdate, step, 0.01 * slow);
    if (step == 3) add(Phase::kSave, step, 9);
  }
  return record;
}

TEST(Splits, AreMeansOfTheWholeStepsOfEachTask) {
  report::Run run;
  run.flights = {RecordOf("worker:1", 6), RecordOf("chief:0", 2)};
  const std::vector<StepSplit> splits = SplitsOf(run);
  ASSERT_EQ(splits.size(), 1u);  // The chief's record has no whole step.
  EXPECT_EQ(splits[0].task, "worker:1");
  EXPECT_EQ(splits[0].steps, 4);
  EXPECT_NEAR(splits[0].input, 0.01, 1e-9);
  EXPECT_NEAR(splits[0].compute, 0.04, 1e-9);
  EXPECT_NEAR(splits[0].wait, 0.02, 1e-9);
  EXPECT_EQ(splits[0].source, "flight record of generation 1.1: mean of steps 2 to 5");
}

TEST(Splits, SystemMetricsAreBetterThanFlightRecords) {
  report::Run run;
  run.flights = {RecordOf("worker:1", 6), RecordOf("worker:2", 6)};
  auto& scalars = run.folders["system"].scalars;
  scalars["steps_per_second/worker_1"] = {{1, 1, 10}, {2, 2, 30}};
  scalars["input_share/worker_1"] = {{1, 1, 0.2}, {2, 2, -1}};
  scalars["wait_share/worker_1"] = {{1, 1, 0.5}};
  scalars["steps_per_second/worker_2"] = {{1, 1, 10}};  // Its shares are unknown.
  scalars["steps_per_second/worker_3"] = {{1, 1, 0}};
  const std::vector<StepSplit> splits = SplitsOf(run);
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(splits[0].task, "worker:1");
  EXPECT_NEAR(splits[0].input, 0.01, 1e-9);
  EXPECT_NEAR(splits[0].wait, 0.025, 1e-9);
  EXPECT_NEAR(splits[0].compute, 0.015, 1e-9);
  EXPECT_EQ(splits[0].source, "system metrics: means of the run");
  EXPECT_EQ(splits[1].task, "worker:2");
  EXPECT_EQ(splits[1].steps, 4);
}

TEST(Splits, RankZeroIsFromTheResult) {
  report::Run run;
  run.result = {{"step_seconds", {{"compute", 0.02}, {"wait", 0.01}, {"input", "damaged"}}}};
  const std::vector<StepSplit> splits = SplitsOf(run);
  ASSERT_EQ(splits.size(), 1u);
  EXPECT_EQ(splits[0].task, "rank 0");
  EXPECT_EQ(splits[0].compute, 0.02);
  EXPECT_EQ(splits[0].input, 0);
  run.result = {{"step_seconds", 3}};
  EXPECT_THAT(SplitsOf(run), IsEmpty());
}

}  // namespace
}  // namespace muster::report
