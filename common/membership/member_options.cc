#include "common/membership/member_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "common/base/logging.h"
#include "common/job/finished_run.h"
#include "common/membership/late_start.h"
#include "common/process/task_identity.h"

namespace muster::membership {
namespace {

// Limit to report a failure of a process that has not joined.
constexpr Duration kReportTimeout = std::chrono::seconds(10);
// The same limit if the failure is that the process has no TLS identity.
constexpr Duration kReportTimeoutUnproven = std::chrono::seconds(2);
// After timeouts.heartbeat, the further silence of a chief before its supervisor ends it.
constexpr Duration kSilentChiefGrace = std::chrono::seconds(2);

std::string ChiefAddress(const ClusterConfig& cluster) {
  return cluster.cluster.AddressOf(*cluster.chief()).ToString();
}

}  // namespace

rpc::ChannelOptions ChannelToChief(const ClusterConfig& cluster) {
  rpc::ChannelOptions options;
  options.identity = cluster.identity;
  options.server_task = cluster.chief()->ToString();
  return options;
}

MemberOptions MemberOptionsOf(const ClusterConfig& cluster, const Job& job) {
  MemberOptions options;
  options.task = cluster.task->ToString();
  options.chief_task = cluster.chief()->ToString();
  options.chief_address = ChiefAddress(cluster);
  options.is_chief = cluster.role() == TaskType::kChief;
  options.cluster_digest = cluster.cluster.Digest();
  options.cluster = Dump(cluster.cluster.ToJson());
  options.job = Dump(JobToJson(job));
  options.channel = ChannelToChief(cluster);
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
  std::copy(std::begin(timeouts.phase), std::end(timeouts.phase), options.timeouts.phase);
  return options;
}

void ReportSilentChief(Supervisor* supervisor, MemberOptions* options) {
  options->on_chief_silent = [supervisor, chief = options->chief_task](int64_t pid,
                                                                       Duration silence) {
    if (silence == Duration::zero()) return supervisor->ReportFound(chief);
    supervisor->ReportLost(
        {chief, pid, fmt::format("no answer for {:.1f} s", Seconds(silence)), kSilentChiefGrace});
  };
}

namespace {

// Sets the identity of `cluster` from the job, for a report of `failure` to the chief. Returns the
// limit of the report. Without an identity, the report is sent in plaintext. A chief without TLS
// accepts the report, and any other refuses it. The report is not secret.
Duration ProveTowardsChief(const Job& job, const absl::Status& failure, ClusterConfig* cluster) {
  if (cluster->identity != nullptr) return kReportTimeout;
  auto identity = IdentityFor(*cluster, job);
  if (identity.ok()) {
    cluster->identity = *std::move(identity);
    return kReportTimeout;
  }
  // The chief probably has no identity either and may not run.
  return identity.status() == failure ? kReportTimeoutUnproven : kReportTimeout;
}

// Reports the failure to the chief, which would otherwise wait for this task. Returns true if the
// job continues and waits for another process.
bool NotifyChief(ClusterConfig cluster, const Job& job, const absl::Status& failure,
                 const std::function<bool()>& give_up) {
  const Duration timeout = ProveTowardsChief(job, failure, &cluster);
  bool try_again = false;
  EarlyFailure report;
  report.task = cluster.task->ToString();
  report.chief_address = ChiefAddress(cluster);
  report.cluster_digest = cluster.cluster.Digest();
  report.failure = failure;
  report.channel = ChannelToChief(cluster);
  const absl::Status reported = ReportFailureTo(report, timeout, give_up, &try_again);
  if (try_again) {
    LogInfo("reported to the chief: {}", Message(reported));
  } else if (!reported.ok()) {
    LogWarning("could not notify the chief: {}", Message(reported));
  }
  return try_again;
}

}  // namespace

absl::Status FailEarly(const ClusterConfig& cluster, const Job& job, const absl::Status& failure,
                       const std::function<bool()>& give_up) {
  const std::string self = cluster.local() ? "" : cluster.task->ToString();
  const bool is_chief = cluster.role() == TaskType::kChief;
  const bool try_again =
      !is_chief && cluster.chief() && NotifyChief(cluster, job, failure, give_up);
  Verdict verdict;
  verdict.code = try_again ? ExitCode::kRetryable : ExitCodeOf(failure);
  verdict.task = self;
  verdict.host = rpc::ThisHost().name;
  verdict.message = Message(failure);
  return StatusOf(verdict, self, is_chief);
}

absl::StatusOr<bool> FinishedWithoutChief(const ClusterConfig& cluster, const Job& job,
                                          const std::function<bool()>& give_up) {
  const std::string self = cluster.task->ToString();
  LateStart start;
  start.chief_task = cluster.chief()->ToString();
  start.chief_address = ChiefAddress(cluster);
  start.join = job.timeouts.join;
  start.give_up = give_up;
  if (!job.model_dir.empty()) {
    start.finished = [&job] { return FinishedRun(job); };
    start.owner = [file = job.model_dir + "/owner.json"] {
      std::error_code error;
      const auto written = std::filesystem::last_write_time(file, error);
      return error ? int64_t{0} : static_cast<int64_t>(written.time_since_epoch().count());
    };
  }
  const absl::StatusOr<std::string> finished = AwaitChief(start);
  if (absl::IsCancelled(finished.status())) return finished.status();
  if (!finished.ok()) {
    Verdict verdict;
    verdict.code = ExitCodeOf(finished.status());
    verdict.task = self;
    verdict.host = rpc::ThisHost().name;
    verdict.message = Message(finished.status());
    return StatusOf(verdict, self, /*is_chief=*/false);
  }
  if (!finished->empty()) LogInfo("{}", *finished);
  return !finished->empty();
}

}  // namespace muster::membership
