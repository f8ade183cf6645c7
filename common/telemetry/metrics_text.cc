#include "common/telemetry/metrics_text.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/phase.h"
#include "muster/version.h"

namespace muster {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

class Families {
 public:
  explicit Families(const std::string& task) : task_(task) {}

  void Counter(const char* name, const char* help, double value, Labels labels = {}) {
    ClientMetric& metric = Add(MetricType::Counter, name, help, std::move(labels));
    metric.counter.value = value;
  }
  void Gauge(const char* name, const char* help, double value, Labels labels = {}) {
    ClientMetric& metric = Add(MetricType::Gauge, name, help, std::move(labels));
    metric.gauge.value = value;
  }
  std::string Text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  // Metrics with the same name must be added one after another.
  ClientMetric& Add(MetricType type, const char* name, const char* help, Labels labels) {
    if (families_.empty() || families_.back().name != name) {
      MetricFamily& family = families_.emplace_back();
      family.name = name;
      family.help = help;
      family.type = type;
    }
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label.push_back({"task", task_});
    metric.label.insert(metric.label.end(), labels.begin(), labels.end());
    return metric;
  }

  const std::string task_;
  std::vector<MetricFamily> families_;
};

void AddTraining(const TaskMetrics& metrics, Families* families) {
  const proto::TaskStats& stats = metrics.stats;
  // The chief of a parameter-server job has no step.
  if (metrics.step > 0)
    families->Gauge("muster_step", "The step that the task works on.",
                    static_cast<double>(metrics.step));
  if (metrics.has_steps)
    families->Counter("muster_steps_total",
                      "Steps that the process has applied; of a ps task, updates.",
                      static_cast<double>(stats.steps()));
  families->Counter("muster_examples_total", "Examples that the process's replicas have computed.",
                    static_cast<double>(stats.examples()));
  const int phases = std::min(stats.phase_seconds_size(), kNumPhases);
  for (int i = 0; i < phases; ++i)
    families->Counter("muster_phase_seconds_total", "Time of the first replica in each phase.",
                      stats.phase_seconds(i), {{"phase", std::string(kPhaseNames[i])}});
  families->Counter("muster_input_wait_seconds_total", "Time for which steps waited for input.",
                    stats.input_wait_seconds());
  for (const proto::InputQueue& queue : stats.input_queues())
    families->Gauge("muster_input_queue_batches", "Batches that the input pipeline has ready, now.",
                    static_cast<double>(queue.ready()), {{"dataset", queue.dataset()}});
  for (const proto::InputQueue& queue : stats.input_queues())
    families->Gauge("muster_input_queue_capacity_batches",
                    "Batches that the input pipeline may load ahead.",
                    static_cast<double>(queue.capacity()), {{"dataset", queue.dataset()}});
  families->Counter("muster_peer_wait_seconds_total",
                    "Time for which steps waited for other tasks.", stats.peer_wait_seconds());
  if (stats.local_step_seconds() > 0)
    families->Gauge("muster_local_step_seconds",
                    "Time of a step before its first wait for other tasks; the median of the last "
                    "five steps.",
                    stats.local_step_seconds());
  if (metrics.pulls) {
    families->Gauge("muster_staleness_updates",
                    "Parameter servers: updates by other workers between a pull and its push, a "
                    "moving mean.",
                    stats.staleness());
    families->Gauge("muster_in_flight_chunks",
                    "Parameter servers: chunks of variables that the worker has pushed or asked "
                    "for, and that the servers have not answered.",
                    static_cast<double>(stats.chunks_in_flight()));
  }
  for (const auto& [member, straggler] : metrics.straggler)
    families->Gauge("muster_straggler", "The chief: 1 if other members wait for this one.",
                    straggler ? 1 : 0, {{"member", member}});
}

void AddJob(const proto::TaskStats& stats, Families* families) {
  families->Counter("muster_sent_bytes_total", "Bytes on data connections to other tasks.",
                    static_cast<double>(stats.bytes_sent()));
  families->Counter("muster_received_bytes_total", "Bytes on data connections from other tasks.",
                    static_cast<double>(stats.bytes_received()));
  const auto by_transport = [&](const char* name, const char* help, int64_t tcp,
                                int64_t shared_memory, int64_t nccl) {
    const std::pair<const char*, int64_t> transports[] = {
        {"tcp", tcp}, {"shared_memory", shared_memory}, {"nccl", nccl}};
    for (const auto& [transport, bytes] : transports)
      families->Counter(name, help, static_cast<double>(bytes), {{"transport", transport}});
  };
  by_transport("muster_transport_sent_bytes_total", "Bytes sent to other tasks, by transport.",
               stats.bytes_sent(), stats.shared_memory_bytes_sent(), stats.nccl_bytes_sent());
  by_transport("muster_transport_received_bytes_total",
               "Bytes received from other tasks, by transport.", stats.bytes_received(),
               stats.shared_memory_bytes_received(), stats.nccl_bytes_received());
  families->Counter("muster_generations_total", "Generations that the process has formed.",
                    static_cast<double>(stats.generations()));
  families->Counter("muster_restarts_total", "Starts of the task by its launcher, after the first.",
                    static_cast<double>(stats.restarts()));
  families->Counter("muster_checkpoints_total",
                    "Complete checkpoints that the process has written.",
                    static_cast<double>(stats.checkpoints()));
}

// The chief of a job with parameter servers.
void AddPushLosses(const proto::TaskStats& stats, Families* families) {
  if (!stats.has_push_losses()) return;
  const proto::PushLosses& losses = stats.push_losses();
  families->Counter("muster_refused_pushes_total",
                    "Pushes with gradients that were not finite, which the servers refused.",
                    static_cast<double>(losses.refused_pushes()));
  families->Counter("muster_torn_pushes_total",
                    "Losses of workers with a lease, whose push may be applied in part.",
                    static_cast<double>(losses.torn_pushes()));
  families->Counter("muster_lost_updates_total",
                    "Updates that were lost with a server that had no backup.",
                    static_cast<double>(losses.lost_updates()));
}

void AddSystem(const TaskMetrics& metrics, Families* families) {
  const proto::TaskStats& stats = metrics.stats;
  families->Counter("process_cpu_seconds_total", "User and system time of all threads.",
                    stats.cpu_seconds());
  families->Gauge("process_resident_memory_bytes", "Resident memory.",
                  static_cast<double>(stats.rss_bytes()));
  families->Gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.",
                  static_cast<double>(metrics.start_time));
  families->Gauge("muster_cpu_cores", "Busy cores, over about the last five seconds.",
                  stats.cpu_cores());
  families->Counter("muster_network_sent_bytes_total",
                    "Bytes sent over the interfaces that the process sees, without loopback.",
                    static_cast<double>(stats.network_sent_bytes()));
  families->Counter("muster_network_received_bytes_total",
                    "Bytes received over the interfaces that the process sees, without loopback.",
                    static_cast<double>(stats.network_received_bytes()));
}

void AddGpus(const proto::TaskStats& stats, Families* families) {
  const auto add = [&](const char* name, const char* help, auto value) {
    for (const proto::GpuStats& gpu : stats.gpus())
      if (const auto number = static_cast<double>(value(gpu)); number >= 0)
        families->Gauge(name, help, number, {{"device", std::to_string(gpu.index())}});
  };
  using Gpu = proto::GpuStats;
  add("muster_gpu_utilization_ratio", "The fraction of time in which a kernel ran.",
      [](const Gpu& gpu) { return gpu.utilization(); });
  add("muster_gpu_memory_access_ratio",
      "The fraction of time in which device memory was read or written.",
      [](const Gpu& gpu) { return gpu.memory_access(); });
  add("muster_gpu_memory_used_bytes", "Device memory that is in use, by all processes.",
      [](const Gpu& gpu) { return gpu.memory_used_bytes(); });
  add("muster_gpu_memory_size_bytes", "Device memory.",
      [](const Gpu& gpu) { return gpu.memory_total_bytes(); });
}

}  // namespace

std::string MetricsText(const TaskMetrics& metrics) {
  Families families(metrics.task);
  families.Gauge("muster_build_info", "The version; the value is 1.", 1,
                 {{"version", MUSTER_VERSION}});
  AddTraining(metrics, &families);
  AddJob(metrics.stats, &families);
  AddPushLosses(metrics.stats, &families);
  AddSystem(metrics, &families);
  AddGpus(metrics.stats, &families);
  return families.Text();
}

}  // namespace muster
