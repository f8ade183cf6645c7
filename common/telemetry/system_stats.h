// Measures the resource use of this process (from /proc) and of its GPUs (from NVML, see nvml.h).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "proto/telemetry.pb.h"

namespace muster {

struct SystemStats {
  double cpu_seconds = 0;  // User and system time of all threads.
  double cpu_cores = 0;    // CPU seconds per second, averaged over about the last five seconds.
  int64_t rss_bytes = 0;   // Resident memory.
  // The sums over all network interfaces in this process's network namespace except loopback.
  int64_t network_sent_bytes = 0, network_received_bytes = 0;
  std::vector<proto::GpuStats> gpus;
};
// Copies the fields of `system` to the same fields of `*stats`.
void AddTo(const SystemStats& system, proto::TaskStats* stats);

// Parse the content of /proc/self/stat or /proc/self/statm. Return nullopt for malformed content.
std::optional<double> CpuSecondsOf(std::string_view proc_self_stat);
std::optional<int64_t> RssBytesOf(std::string_view proc_self_statm);
// Parses the content of /proc/self/net/dev. Returns the sums of sent and received bytes. Skips
// malformed lines.
std::pair<int64_t, int64_t> NetworkBytesOf(std::string_view proc_net_dev);

// Reads the statistics of GPUs of this host through NVML.
class GpuReader {
 public:
  virtual ~GpuReader() = default;
  // Blocks if the driver hangs.
  virtual std::vector<proto::GpuStats> Read() = 0;
};
// Loads `library` and finds the GPUs with these UUIDs ("GPU-8932f937-..."). Returns null if the
// library is missing or none of the GPUs exists.
std::unique_ptr<GpuReader> OpenNvml(const std::vector<std::string>& uuids,
                                    const char* library = "libnvidia-ml.so.1");

// Samples the resource use of this process. Used by one thread.
class SystemSampler {
 public:
  void set_gpus(std::unique_ptr<GpuReader> gpus) { gpus_ = std::move(gpus); }
  SystemStats Sample(MonotonicTime now = Clock::now());

 private:
  std::unique_ptr<GpuReader> gpus_;
  std::deque<std::pair<MonotonicTime, double>> cpu_;  // The last samples of cpu_seconds.
};

}  // namespace muster
