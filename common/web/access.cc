#include "common/web/access.h"

#include <fmt/format.h>

#include <algorithm>

namespace muster::web {
namespace {

bool AllLoopback(const ClusterSpec& cluster) {
  return std::ranges::all_of(
      cluster.Tasks(), [&](const TaskId& task) { return IsLoopback(cluster.AddressOf(task)); });
}

// Returns true if each task has a host of its own, such as a pod, according to TF_CONFIG.
bool IsCloud(const ClusterConfig& cluster) { return cluster.environment == "cloud"; }

// Returns the number of tasks before this one on its host, in the order of the cluster.
int TasksBefore(const ClusterConfig& cluster) {
  if (cluster.local()) return 0;
  const ClusterSpec& spec = cluster.cluster;
  if (!spec.Has(*cluster.task)) {
    // An evaluator that the cluster does not list. Its host is unknown, and may be that of any
    // other task.
    return IsCloud(cluster) ? 0 : static_cast<int>(spec.Tasks().size()) + cluster.task->index;
  }
  // All loopback addresses are one host.
  const auto host_of = [&](const TaskId& task) {
    Address address = spec.AddressOf(task);
    if (IsLoopback(address)) address.host = "localhost";
    address.port = 1;
    return address;
  };
  int before = 0;
  for (const TaskId& task : spec.Tasks()) {
    if (task == *cluster.task) break;
    if (host_of(task) == host_of(*cluster.task)) ++before;
  }
  return before;
}

}  // namespace

HttpOptions OptionsFor(const ClusterConfig& cluster, const Job& job, int port) {
  HttpOptions options;
  options.address = job.status.address;
  options.port = port;
  options.bind_timeout = job.timeouts.bind;
  const bool all_loopback =
      AllLoopback(cluster.cluster) && IsLoopback(Address{.host = job.status.address});
  if (!all_loopback) options.identity = cluster.identity;
  return options;
}

bool IsOpen(const ClusterConfig& cluster, const HttpOptions& options) {
  return options.identity == nullptr && !IsLoopback(Address{.host = options.address}) &&
         AllLoopback(cluster.cluster);
}

absl::StatusOr<int> MetricsPort(const ClusterConfig& cluster, const Job& job) {
  if (job.status.metrics_port == 0) return 0;
  const int before = TasksBefore(cluster);
  const int64_t port = job.status.metrics_port + before;
  if (port <= 65535) return static_cast<int>(port);
  return ConfigurationError(fmt::format(
      "status.metrics_port is {}, and this is task {} of its host, for which it would be "
      "{}: choose a lower one, ports end at 65535",
      job.status.metrics_port, before + 1, port));
}

}  // namespace muster::web
