#include "chief/system_summaries.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace muster::chief {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::map<std::string, proto::TaskStats> TwoTasks() {
  std::map<std::string, proto::TaskStats> stats;
  stats["chief:0"].set_cpu_cores(1.5);
  stats["chief:0"].set_rss_bytes(100);
  proto::TaskStats& worker = stats["worker:1"];
  worker.set_cpu_cores(0.5);
  worker.set_rss_bytes(200);
  worker.set_steps_per_second(2);
  worker.set_input_share(-1);
  worker.set_wait_share(0.5);
  proto::GpuStats& gpu = *worker.add_gpus();
  gpu.set_index(3);
  gpu.set_utilization(0.75);
  gpu.set_memory_access(0.25);
  gpu.set_memory_used_bytes(1000);
  proto::GpuStats& unknown = *worker.add_gpus();
  unknown.set_index(4);
  unknown.set_utilization(-1);
  unknown.set_memory_access(-1);
  unknown.set_memory_used_bytes(-1);
  return stats;
}

TEST(SystemSummariesTest, OneCurveForEachTaskAndDevice) {
  const ScalarReport report = SystemScalars(7, TwoTasks());
  EXPECT_EQ(report.step, 7);
  EXPECT_THAT(report.values,
              ElementsAre(Pair("cpu_cores/chief_0", 1.5), Pair("rss_bytes/chief_0", 100),
                          Pair("cpu_cores/worker_1", 0.5), Pair("rss_bytes/worker_1", 200),
                          Pair("steps_per_second/worker_1", 2), Pair("wait_share/worker_1", 0.5),
                          Pair("gpu_utilization/worker_1/gpu_3", 0.75),
                          Pair("gpu_memory_access/worker_1/gpu_3", 0.25),
                          Pair("gpu_memory_used_bytes/worker_1/gpu_3", 1000)));
}

TEST(SystemSummariesTest, WritesOnePointOfAStepAndALastOne) {
  absl::Mutex mutex;
  std::vector<int64_t> steps;
  std::atomic<int64_t> step = 0;
  SystemSummaryOptions options;
  options.stats = TwoTasks;
  options.step = [&] { return step.load(); };
  options.write = [&](const ScalarReport& report) {
    absl::MutexLock lock(&mutex);
    steps.push_back(report.step);
  };
  options.interval = std::chrono::milliseconds(1);
  const auto written = [&](size_t count) {
    const MonotonicTime end = Clock::now() + std::chrono::seconds(20);
    while (Clock::now() < end) {
      absl::MutexLock lock(&mutex);
      if (steps.size() >= count) return true;
    }
    return false;
  };
  {
    SystemSummaries summaries(options);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    step = 3;
    ASSERT_TRUE(written(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    step = 4;
    ASSERT_TRUE(written(2));
  }
  EXPECT_THAT(steps, ElementsAre(3, 4));
  steps.clear();
  options.interval = std::chrono::seconds(600);
  { SystemSummaries summaries(options); }
  EXPECT_THAT(steps, ElementsAre(4)) << "when it ends";
}

}  // namespace
}  // namespace muster::chief
