#include "common/membership/member_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "common/base/logging.h"
#include "common/job/finished_run.h"
#include "common/membership/late_start.h"
#include "common/process/data_port.h"
#include "common/process/task_identity.h"
#include "common/transport/counted_stream.h"

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

absl::StatusOr<std::unique_ptr<transport::DataListener>> OpenDataPort(
    const TaskSetup& setup, FaultyMember* faulty, const std::function<bool()>& give_up) {
  MUSTER_ASSIGN_OR_RETURN(transport::ListenerOptions options,
                          DataPortOptions(setup.job, setup.cluster, give_up));
  options.wrap = [traffic = setup.telemetry->meter()->traffic()](auto stream) {
    return transport::CountBytes(std::move(stream), {traffic, &traffic->tcp});
  };
  if (faulty != nullptr) faulty->Adapt(&options);
  return transport::DataListener::Create(options);
}

MemberOptions MemberOptionsOf(const TaskSetup& setup, Supervisor* supervisor,
                              const std::string& termination_log) {
  const ClusterConfig& cluster = setup.cluster;
  const Job& job = setup.job;
  MemberOptions options;
  options.task = cluster.task->ToString();
  options.chief_task = cluster.chief()->ToString();
  options.chief_address = ChiefAddress(cluster);
  options.is_chief = cluster.role() == TaskType::kChief;
  options.cluster_digest = cluster.cluster.Digest();
  options.cluster = Dump(cluster.cluster.ToJson());
  options.job = Dump(JobToJson(job));
  options.channel = ChannelToChief(cluster);
  options.timeouts = {job.timeouts};
  options.timeouts.heartbeat_interval =
      std::min<Duration>(options.timeouts.heartbeat_interval, job.timeouts.heartbeat / 4);
  if (!options.is_chief) {
    options.on_chief_silent = [supervisor, chief = options.chief_task](int64_t pid,
                                                                       Duration silence) {
      if (silence == Duration::zero()) return supervisor->ReportFound(chief);
      supervisor->ReportLost(
          {chief, pid, fmt::format("no answer for {:.1f} s", Seconds(silence)), kSilentChiefGrace});
    };
  }
  options.on_stuck = [termination_log](const std::string& why) {
    EndNow(why + "; ending this process", termination_log, ExitCode::kRetryable);
  };
  options.stats = [meter = setup.telemetry->meter()](proto::TaskStats* stats) {
    *stats = meter->Stats();
  };
  return options;
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

absl::Status FailEarly(const TaskSetup& setup, const absl::Status& failure,
                       const std::function<bool()>& give_up) {
  const ClusterConfig& cluster = setup.cluster;
  const bool try_again = cluster.role() != TaskType::kChief && cluster.chief() &&
                         NotifyChief(cluster, setup.job, failure, give_up);
  return setup.OwnFailure(failure, try_again ? ExitCode::kRetryable : ExitCodeOf(failure));
}

absl::StatusOr<bool> FinishedWithoutChief(const TaskSetup& setup,
                                          const std::function<bool()>& give_up) {
  const ClusterConfig& cluster = setup.cluster;
  const Job& job = setup.job;
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
  if (!finished.ok()) return setup.OwnFailure(finished.status(), ExitCodeOf(finished.status()));
  if (!finished->empty()) LogInfo("{}", *finished);
  return !finished->empty();
}

}  // namespace muster::membership
