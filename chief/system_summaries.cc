#include "chief/system_summaries.h"

#include <algorithm>
#include <utility>

namespace muster::chief {

ScalarReport SystemScalars(int64_t step, const std::map<std::string, proto::TaskStats>& stats) {
  ScalarReport report;
  report.step = step;
  const auto add = [&](std::string tag, const std::string& place, double value) {
    report.values.emplace_back(std::move(tag) + "/" + place, value);
  };
  for (const auto& [task, of_task] : stats) {
    std::string name = task;
    std::replace(name.begin(), name.end(), ':', '_');
    add("cpu_cores", name, of_task.cpu_cores());
    add("rss_bytes", name, static_cast<double>(of_task.rss_bytes()));
    // `muster report` divides the time of a step by these.
    if (of_task.steps_per_second() > 0) {
      add("steps_per_second", name, of_task.steps_per_second());
      if (of_task.input_share() >= 0) add("input_share", name, of_task.input_share());
      if (of_task.wait_share() >= 0) add("wait_share", name, of_task.wait_share());
    }
    for (const proto::GpuStats& gpu : of_task.gpus()) {
      const std::string device = name + "/gpu_" + std::to_string(gpu.index());
      if (gpu.utilization() >= 0) add("gpu_utilization", device, gpu.utilization());
      if (gpu.memory_access() >= 0) add("gpu_memory_access", device, gpu.memory_access());
      if (gpu.memory_used_bytes() >= 0)
        add("gpu_memory_used_bytes", device, static_cast<double>(gpu.memory_used_bytes()));
    }
  }
  return report;
}

SystemSummaries::SystemSummaries(SystemSummaryOptions options)
    : options_(std::move(options)), thread_([this] {
        while (!end_.WaitFor(options_.interval)) Write();
        Write();
      }) {}

SystemSummaries::~SystemSummaries() {
  end_.Notify();
  thread_.join();
}

void SystemSummaries::Write() {
  const int64_t step = options_.step();
  // A curve has one point of a step.
  if (step <= 0 || step == last_step_) return;
  last_step_ = step;
  const ScalarReport report = SystemScalars(step, options_.stats());
  if (!report.values.empty()) options_.write(report);
}

}  // namespace muster::chief
