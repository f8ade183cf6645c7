#include "common/telemetry/metrics_text.h"

#include <gmock/gmock.h>

#include <fstream>
#include <set>
#include <sstream>

#include "common/base/phase.h"
#include "muster/version.h"
#include "tests/paths.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TaskMetrics Full() {
  TaskMetrics metrics;
  metrics.task = "worker:1";
  metrics.pulls = true;
  metrics.step = 8;
  metrics.start_time = 1700000000;
  metrics.straggler = {{"chief:0", false}, {"worker:1", true}};
  proto::TaskStats& stats = metrics.stats;
  stats.set_steps(7);
  stats.set_examples(224);
  for (int i = 0; i < kNumPhases; ++i) stats.add_phase_seconds(i + 0.5);
  stats.set_local_step_seconds(0.25);
  stats.set_chunks_in_flight(5);
  stats.set_bytes_sent(1);
  stats.set_shared_memory_bytes_sent(2);
  stats.set_nccl_bytes_sent(3);
  stats.set_nccl_bytes_received(4);
  stats.mutable_push_losses()->set_refused_pushes(6);
  for (const char* dataset : {"noise", "train"}) {
    proto::InputQueue& queue = *stats.add_input_queues();
    queue.set_dataset(dataset);
    queue.set_ready(2);
    queue.set_capacity(4);
  }
  proto::GpuStats& gpu = *stats.add_gpus();
  gpu.set_index(3);
  gpu.set_utilization(0.5);
  gpu.set_memory_access(0.25);
  gpu.set_memory_used_bytes(1000);
  gpu.set_memory_total_bytes(2000);
  return metrics;
}

// The names with their types, from the "# TYPE" lines.
std::set<std::string> NamesOf(const std::string& text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("# TYPE ")) names.insert(line.substr(7));
  return names;
}

TEST(MetricsTextTest, HasNamesLabelsAndValues) {
  EXPECT_THAT(
      MetricsText(Full()),
      AllOf(HasSubstr("muster_build_info{task=\"worker:1\",version=\"" MUSTER_VERSION "\"} 1\n"),
            HasSubstr("# TYPE muster_steps_total counter\n"
                      "muster_steps_total{task=\"worker:1\"} 7\n"),
            HasSubstr("muster_phase_seconds_total{task=\"worker:1\",phase=\"data\"} 2.5\n"),
            HasSubstr("muster_local_step_seconds{task=\"worker:1\"} 0.25\n"),
            HasSubstr("muster_straggler{task=\"worker:1\",member=\"worker:1\"} 1\n"),
            HasSubstr("muster_input_queue_batches{task=\"worker:1\",dataset=\"noise\"} 2\n"
                      "muster_input_queue_batches{task=\"worker:1\",dataset=\"train\"} 2\n"),
            HasSubstr("muster_input_queue_capacity_batches{task=\"worker:1\",dataset=\"train\"} "
                      "4\n"),
            HasSubstr("muster_in_flight_chunks{task=\"worker:1\"} 5\n"),
            HasSubstr(
                "muster_transport_sent_bytes_total{task=\"worker:1\",transport=\"tcp\"} 1\n"
                "muster_transport_sent_bytes_total{task=\"worker:1\",transport=\"shared_memory\"} "
                "2\n"
                "muster_transport_sent_bytes_total{task=\"worker:1\",transport=\"nccl\"} 3\n"),
            HasSubstr("muster_transport_received_bytes_total{task=\"worker:1\",transport="
                      "\"nccl\"} 4\n"),
            HasSubstr("muster_refused_pushes_total{task=\"worker:1\"} 6\n"),
            HasSubstr("muster_gpu_utilization_ratio{task=\"worker:1\",device=\"3\"} 0.5\n"),
            HasSubstr("# HELP muster_step "), HasSubstr("process_resident_memory_bytes")));
}

TEST(MetricsTextTest, LeavesOutWhatIsUnknown) {
  TaskMetrics metrics = Full();
  metrics.stats.mutable_gpus(0)->set_utilization(-1);
  metrics.stats.mutable_gpus(0)->set_memory_total_bytes(-1);
  metrics.stats.set_local_step_seconds(0);
  metrics.stats.clear_input_queues();
  metrics.stats.clear_push_losses();
  metrics.straggler.clear();
  metrics.has_steps = false;
  metrics.pulls = false;
  metrics.step = 0;
  EXPECT_THAT(MetricsText(metrics),
              AllOf(Not(HasSubstr("muster_gpu_utilization_ratio")),
                    Not(HasSubstr("muster_local_step_seconds")), Not(HasSubstr("muster_straggler")),
                    Not(HasSubstr("muster_staleness_updates")),
                    Not(HasSubstr("muster_steps_total")), Not(HasSubstr("muster_in_flight_chunks")),
                    Not(HasSubstr("muster_input_queue")), Not(HasSubstr("muster_step{")),
                    Not(HasSubstr("_pushes_total")), Not(HasSubstr("muster_lost_updates_total")),
                    Not(HasSubstr("muster_gpu_memory_size_bytes")),
                    HasSubstr("muster_gpu_memory_used_bytes")));
}

TEST(MetricsTextTest, PeersCannotAddPhases) {
  TaskMetrics metrics = Full();
  for (int i = 0; i < 100; ++i) metrics.stats.add_phase_seconds(1);
  const std::string text = MetricsText(metrics);
  size_t lines = 0;
  for (size_t at = 0; (at = text.find("\nmuster_phase_seconds_total{", at)) != std::string::npos;
       ++at)
    ++lines;
  EXPECT_EQ(lines, static_cast<size_t>(kNumPhases));
}

// The list in tests/golden/metrics.txt has each name, its type and the labels besides `task`.
TEST(MetricsTextTest, NamesAreThoseOfTheGoldenList) {
  std::ifstream golden(testing_support::SourceDir() + "/tests/golden/metrics.txt");
  std::set<std::string> listed;
  for (std::string line; std::getline(golden, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name, type;
    words >> name >> type;
    listed.insert(name + " " + type);
  }
  EXPECT_EQ(NamesOf(MetricsText(Full())), listed)
      << "add new metrics to tests/golden/metrics.txt and docs/metrics.md; from then on they stay";
}

}  // namespace
}  // namespace muster
