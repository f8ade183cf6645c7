#include "worker/member_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/logging.h"

namespace muster {
namespace {

// How long a process that failed before it joined tries to tell the chief.
constexpr Duration kTellChief = std::chrono::seconds(10);
// How long a chief that was silent for timeouts.heartbeat may take to be heard again before its
// supervisor ends it.
constexpr Duration kSilentChiefGrace = std::chrono::seconds(2);

std::string ChiefAddress(const ClusterConfig& cluster) {
  return cluster.cluster.AddressOf(*cluster.chief()).ToString();
}

}  // namespace

rpc::TlsFiles TlsOf(const Job& job) {
  return {job.tls.enabled, job.tls.certificate, job.tls.key, job.tls.authority};
}

MemberOptions MemberOptionsOf(const ClusterConfig& cluster, const Job& job) {
  MemberOptions options;
  options.task = cluster.task->ToString();
  options.chief_task = cluster.chief()->ToString();
  options.chief_address = ChiefAddress(cluster);
  options.recover = true;
  options.is_chief = cluster.role() == TaskType::kChief;
  options.cluster_digest = cluster.cluster.Digest();
  options.cluster = cluster.cluster.ToJson().dump();
  options.job = JobToJson(job).dump();
  options.channel.tls = TlsOf(job);
  const Timeouts& timeouts = job.timeouts;
  options.timeouts.join = timeouts.join;
  options.timeouts.rejoin = timeouts.rejoin;
  options.timeouts.abort = timeouts.abort;
  options.timeouts.resume = timeouts.resume;
  options.timeouts.heartbeat = timeouts.heartbeat;
  options.timeouts.heartbeat_interval =
      std::min<Duration>(options.timeouts.heartbeat_interval, timeouts.heartbeat / 4);
  options.timeouts.formation = timeouts.formation;
  options.timeouts.collective = timeouts.collective;
  return options;
}

void TellOfSilentChief(Supervisor* supervisor, MemberOptions* options) {
  options->on_chief_silent = [supervisor, chief = options->chief_task](int64_t pid,
                                                                       Duration silence) {
    if (silence == Duration::zero()) return supervisor->Found(chief);
    supervisor->Lost(
        {chief, pid, fmt::format("no answer for {:.1f} s", Seconds(silence)), kSilentChiefGrace});
  };
}

absl::Status FailEarly(const ClusterConfig& cluster, const Job& job, const absl::Status& failure) {
  const std::string self = cluster.local() ? "" : cluster.task->ToString();
  const bool is_chief = cluster.role() == TaskType::kChief;
  if (!is_chief && cluster.chief()) {
    // The chief waits for this task: it has to know, so that the job's verdict names the reason.
    EarlyFailure report;
    report.task = self;
    report.chief_address = ChiefAddress(cluster);
    report.cluster_digest = cluster.cluster.Digest();
    report.failure = failure;
    report.channel.tls = TlsOf(job);
    if (const absl::Status told = ReportFailureTo(report, kTellChief); !told.ok())
      LogWarning("could not tell the chief: {}", Message(told));
  }
  Verdict verdict;
  verdict.code = ExitCodeOf(failure);
  verdict.task = self;
  verdict.host = rpc::ThisHost().name;
  verdict.message = Message(failure);
  return StatusOf(verdict, self, is_chief);
}

}  // namespace muster
