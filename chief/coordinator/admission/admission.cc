#include "chief/coordinator/admission/admission.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/cluster/chief_term.h"
#include "common/cluster/other_file.h"
#include "common/cluster/protocol.h"

namespace muster::chief {
namespace {

// Refuses a process that trained for this run with an earlier job file, cluster or version. The job
// itself has no error, and a restart of the process fixes this.
std::optional<Refusal> OfAnEarlierStart(const proto::Hello& hello, const std::string& why) {
  if (hello.run_id().empty()) return std::nullopt;
  return Refusal{
      ExitCode::kRetryable,
      fmt::format("{}; it was started before the chief was, and has to be started again", why),
      false};
}

std::optional<Refusal> CheckCluster(const proto::Hello& hello, const Differences& differences,
                                    const JobState& state, bool vacant, const AdmissionOptions& o) {
  const int member = FindMember(state, hello.task());
  if (hello.cluster_digest() != o.cluster_digest) {
    const std::string field =
        differences.cluster_field.empty() ? "its digest" : differences.cluster_field;
    const std::string why = fmt::format(
        "{} was started with another cluster than the chief: they differ in {}; give all tasks the "
        "same TF_CONFIG cluster",
        TaskText(hello.task()), field);
    if (auto earlier = OfAnEarlierStart(hello, why)) return earlier;
    return Refusal{ExitCode::kConfiguration, why, member >= 0 && vacant};
  }
  if (member < 0)
    return Refusal{
        ExitCode::kConfiguration,
        fmt::format(
            "{} is not a member of this cluster's training: members are {}", TaskText(hello.task()),
            FindMember(state, "ps:0") < 0 ? "the chief and the workers" : "the workers and the ps"),
        false};
  return std::nullopt;
}

std::optional<Refusal> CheckNamesake(PausingTime now, const proto::Hello& hello,
                                     const MemberInfo& m, const AdmissionOptions& o) {
  if (!m.process.joined || m.process.incarnation == hello.incarnation()) return std::nullopt;
  if (!m.process.connected || now - m.process.last_heard >= o.suspect)
    return std::nullopt;  // The new process takes its place.
  // This process holds state of the run: it was a member until another process replaced it.
  if (!hello.run_id().empty())
    return Refusal{ExitCode::kRetryable,
                   fmt::format("{} was lost and replaced by another process, on host {}: this one "
                               "is superseded",
                               m.declared.task.DisplayName(), m.process.host),
                   false};
  // Either the other process is exiting and still saves, or two processes were started as this
  // task.
  return Refusal{ExitCode::kRetryable,
                 fmt::format("another process is {} already, on host {} (pid {}): this one waits "
                             "until that process has ended",
                             m.declared.task.DisplayName(), m.process.host, m.process.pid),
                 false, /*tries_again=*/true};
}

// Adopting a very high term would leave no room for the generations of later chiefs.
std::optional<Refusal> CheckGeneration(const proto::Hello& hello, const AdmissionOptions& o) {
  const uint64_t term = std::max(hello.highest_generation(), hello.generation()) >> 32;
  // Compares with the first term, so that many small increases cannot add up to a large one.
  if (IsPlausibleTerm(term, o.first_term)) return std::nullopt;
  return Refusal{ExitCode::kRetryable,
                 fmt::format("{} reports a generation of the chief's term {}, and this is term {}: "
                             "no run has had so many chiefs; restart it",
                             TaskText(hello.task()), term, o.term),
                 false};
}

// `key` is from FirstDifference.
std::string DifferingJob(const std::string& task, const std::string& key) {
  if (key.starts_with(kDigestsPrefix)) return OtherFile(task, key);
  return fmt::format(
      "{} was started with another job than the chief: they differ in '{}'; give "
      "all tasks the same job file and --set arguments",
      TaskText(task), key);
}

}  // namespace

int FindMember(const JobState& state, std::string_view name) {
  const std::optional<TaskId> task = ParseTaskId(name);
  if (!task || task->ToString() != name) return -1;  // Messages use only this spelling.
  for (int i = 0; i < static_cast<int>(state.members.size()); ++i) {
    if (state.members[i].declared.task == *task) return i;
  }
  return -1;
}

Differences DifferencesOf(const proto::Hello& hello, const AdmissionOptions& o) {
  Differences differences;
  if (hello.cluster_digest() != o.cluster_digest) {
    if (o.differing_cluster_field)
      differences.cluster_field = o.differing_cluster_field(o.cluster, hello.cluster());
  } else if (hello.job() != o.job && o.differing_job_key) {
    differences.job_key = o.differing_job_key(o.job, hello.job());
  }
  return differences;
}

std::optional<Refusal> Admit(PausingTime now, const proto::Hello& hello,
                             const Differences& differences, const JobState& state,
                             const AdmissionOptions& o) {
  const int member = FindMember(state, hello.task());
  // No other process has the place, so this refusal keeps the job from starting.
  const bool vacant = member >= 0 && !state.members[member].process.joined && state.generation == 0;
  if (hello.protocol() != kControlProtocol) {
    const std::string why = fmt::format(
        "{} speaks control protocol {}, the chief {}: start all tasks from one version of Muster",
        TaskText(hello.task()), hello.protocol(), kControlProtocol);
    if (auto earlier = OfAnEarlierStart(hello, why)) return earlier;
    return Refusal{ExitCode::kConfiguration, why, vacant};
  }
  if (auto refusal = CheckCluster(hello, differences, state, vacant, o)) return refusal;
  if (auto refusal = CheckNamesake(now, hello, state.members[member], o)) return refusal;
  if (auto refusal = CheckGeneration(hello, o)) return refusal;
  if (!hello.run_id().empty() && hello.run_id() != o.run_id)
    return Refusal{ExitCode::kRetryable,
                   fmt::format("{} holds state of run {}, the chief runs {}: restart it",
                               TaskText(hello.task()), hello.run_id(), o.run_id),
                   false};
  if (const std::string& key = differences.job_key; !key.empty()) {
    const std::string why = DifferingJob(hello.task(), key);
    if (auto earlier = OfAnEarlierStart(hello, why)) return earlier;
    return Refusal{ExitCode::kConfiguration, why, vacant};
  }
  return std::nullopt;
}

std::optional<Refusal> CheckDevices(const proto::Hello& hello, std::vector<MemberDevices> members) {
  if (!hello.has_held()) return std::nullopt;
  members.push_back(DevicesOf(hello.task(), hello.held()));
  const absl::Status clash = CheckDeviceClash(members);
  if (clash.ok()) return std::nullopt;
  return Refusal{
      ExitCode::kRetryable,
      fmt::format("{}; the job continues without this process, and another one can take its place",
                  Message(clash)),
      false};
}

}  // namespace muster::chief
