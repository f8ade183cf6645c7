#include "chief/coordinator/peer_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/peer_text.h"

namespace muster::chief {
namespace {

constexpr size_t kMostNameBytes = 1000;
constexpr size_t kMostDocumentBytes = 768 << 10;
constexpr int kMostReplicas = 1024;
constexpr int kMostCores = 1 << 14;
constexpr int kMostVersions = 64;

void Clean(std::string* text, size_t most = kMostPeerText) {
  std::string clean = PeerText(*text, most);
  if (clean != *text) *text = std::move(clean);
}

std::string TooLong(std::string_view what, size_t most) {
  return fmt::format("its {} has more than {} bytes", what, most);
}

std::string WrongWithHeld(const proto::DevicesHeld& held) {
  if (held.uuids_size() > kMostReplicas)
    return fmt::format("it holds more than {} devices", kMostReplicas);
  for (const std::string& uuid : held.uuids())
    if (uuid.size() > kMostNameBytes) return TooLong("device's name", kMostNameBytes);
  return "";
}

}  // namespace

bool IsRunId(std::string_view id) {
  return id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-' || c == '_';
         });
}

std::string WrongWith(const proto::Hello& hello) {
  const auto between = [](int value, int least, int most) {
    return value >= least && value <= most;
  };
  for (const auto& [what, text] : {std::pair<const char*, const std::string&>{"task", hello.task()},
                                   {"host", hello.host()},
                                   {"host id", hello.host_id()},
                                   {"data address", hello.data_address()},
                                   {"cluster digest", hello.cluster_digest()}})
    if (text.size() > kMostNameBytes) return TooLong(what, kMostNameBytes);
  for (const auto& [what, text] : {std::pair<const char*, const std::string&>{"job", hello.job()},
                                   {"cluster", hello.cluster()}})
    if (text.size() > kMostDocumentBytes) return TooLong(what, kMostDocumentBytes);
  if (!IsRunId(hello.run_id())) return "its run id is none";
  if (!between(hello.num_replicas(), 0, kMostReplicas))
    return fmt::format("it has {} replicas, not 0 to {}", hello.num_replicas(), kMostReplicas);
  if (hello.cpus_size() > kMostCores) return fmt::format("it has more than {} cores", kMostCores);
  for (const int cpu : hello.cpus())
    if (!between(cpu, 0, kMostCores)) return fmt::format("it runs on core {}", cpu);
  if (hello.versions_size() > kMostVersions)
    return fmt::format("it tells of more than {} versions", kMostVersions);
  for (const auto& [name, version] : hello.versions())
    if (std::max(name.size(), version.size()) > kMostNameBytes)
      return TooLong("version", kMostNameBytes);
  return WrongWithHeld(hello.held());
}

void CleanText(proto::Hello* hello) {
  for (std::string* text : {hello->mutable_task(), hello->mutable_host(), hello->mutable_devices(),
                            hello->mutable_host_id(), hello->mutable_data_address()})
    Clean(text);
  for (auto& [name, version] : *hello->mutable_versions()) Clean(&version);
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
