#include "chief/coordinator/admission/peer_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/peer_text.h"
#include "common/base/phase.h"

namespace muster::chief {
namespace {

constexpr size_t kMaxNameBytes = 1000;
constexpr size_t kMaxDocumentBytes = 768 << 10;
constexpr int kMaxReplicas = 1024;
constexpr int kMaxCores = 1 << 14;
constexpr int kMaxVersions = 64;
constexpr int kMaxGpus = 64;
constexpr int kMaxQueues = 64;
constexpr size_t kMaxDatasetBytes = 100;
constexpr size_t kMaxUuidBytes = 100;

void Clean(std::string* text, size_t most = kMaxPeerText) {
  std::string clean = SanitizePeerText(*text, most);
  if (clean != *text) *text = std::move(clean);
}

std::string TooLong(std::string_view what, size_t most) {
  return fmt::format("its {} has more than {} bytes", what, most);
}

std::string ProblemWithDevices(const proto::DevicesHeld& held) {
  if (held.uuids_size() > kMaxReplicas)
    return fmt::format("it holds more than {} devices", kMaxReplicas);
  for (const std::string& uuid : held.uuids())
    if (uuid.size() > kMaxNameBytes) return TooLong("device's name", kMaxNameBytes);
  if (held.nccl_host_id().size() > kMaxNameBytes) return TooLong("NCCL host id", kMaxNameBytes);
  return "";
}

}  // namespace

bool IsRunId(std::string_view id) {
  return id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-' || c == '_';
         });
}

std::string ProblemWith(const proto::Hello& hello) {
  const auto between = [](int value, int least, int most) {
    return value >= least && value <= most;
  };
  for (const auto& [what, text] : {std::pair<const char*, const std::string&>{"task", hello.task()},
                                   {"host", hello.host()},
                                   {"host id", hello.host_id()},
                                   {"data address", hello.data_address()},
                                   {"cluster digest", hello.cluster_digest()}})
    if (text.size() > kMaxNameBytes) return TooLong(what, kMaxNameBytes);
  for (const auto& [what, text] : {std::pair<const char*, const std::string&>{"job", hello.job()},
                                   {"cluster", hello.cluster()}})
    if (text.size() > kMaxDocumentBytes) return TooLong(what, kMaxDocumentBytes);
  if (!IsRunId(hello.run_id())) return "its run id is invalid";
  if (!between(hello.num_replicas(), 0, kMaxReplicas))
    return fmt::format("it has {} replicas, not 0 to {}", hello.num_replicas(), kMaxReplicas);
  if (hello.cpus_size() > kMaxCores) return fmt::format("it has more than {} cores", kMaxCores);
  for (const int cpu : hello.cpus())
    if (!between(cpu, 0, kMaxCores)) return fmt::format("it runs on core {}", cpu);
  if (hello.versions_size() > kMaxVersions)
    return fmt::format("it lists more than {} versions", kMaxVersions);
  for (const auto& [name, version] : hello.versions())
    if (std::max(name.size(), version.size()) > kMaxNameBytes)
      return TooLong("version", kMaxNameBytes);
  return ProblemWithDevices(hello.held());
}

void CleanText(proto::Hello* hello) {
  for (std::string* text : {hello->mutable_task(), hello->mutable_host(), hello->mutable_devices(),
                            hello->mutable_host_id(), hello->mutable_data_address()})
    Clean(text);
  for (auto& [name, version] : *hello->mutable_versions()) Clean(&version);
}

void CleanStats(proto::TaskStats* stats) {
  if (stats->phase_seconds_size() > kNumPhases)
    stats->mutable_phase_seconds()->Truncate(kNumPhases);
  while (stats->gpus_size() > kMaxGpus) stats->mutable_gpus()->RemoveLast();
  for (proto::GpuStats& gpu : *stats->mutable_gpus()) Clean(gpu.mutable_uuid(), kMaxUuidBytes);
  while (stats->input_queues_size() > kMaxQueues) stats->mutable_input_queues()->RemoveLast();
  for (proto::InputQueue& queue : *stats->mutable_input_queues())
    Clean(queue.mutable_dataset(), kMaxDatasetBytes);
}

void CleanText(proto::Report* report) {
  Clean(report->mutable_outcome_message());
  Clean(report->mutable_collective());
  if (report->has_formation_error()) Clean(report->mutable_formation_error()->mutable_message());
  if (report->has_collective_error()) Clean(report->mutable_collective_error()->mutable_message());
}

void CleanText(proto::FailureReport* report) {
  for (std::string* text :
       {report->mutable_task(), report->mutable_host(), report->mutable_message()})
    Clean(text);
}

}  // namespace muster::chief
