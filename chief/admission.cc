#include "chief/admission.h"

#include <fmt/format.h>

#include "common/cluster/other_file.h"
#include "common/cluster/protocol.h"

namespace muster {
namespace {

std::optional<Refusal> CheckCluster(const proto::Hello& hello, const JobState& state, bool vacant,
                                    const AdmissionOptions& o) {
  const int member = FindMember(state, hello.task());
  if (hello.cluster_digest() != o.cluster_digest) {
    std::string field =
        o.differing_cluster_field ? o.differing_cluster_field(o.cluster, hello.cluster()) : "";
    if (field.empty()) field = "its digest";
    return Refusal{ExitCode::kConfiguration,
                   fmt::format("{} was started with another cluster than the chief: they differ "
                               "in {}; give all tasks the same TF_CONFIG cluster",
                               TaskText(hello.task()), field),
                   member >= 0 && vacant};
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

std::optional<Refusal> CheckNamesake(MonotonicTime now, const proto::Hello& hello,
                                     const MemberState& m, const AdmissionOptions& o) {
  if (!m.joined || m.incarnation == hello.incarnation()) return std::nullopt;
  if (!m.connected || now - m.last_heard >= o.suspect) return std::nullopt;  // it takes its place
  // A process with state of the run was a member, was given up and replaced.
  if (!hello.run_id().empty())
    return Refusal{ExitCode::kRetryable,
                   fmt::format("{} was lost and replaced by another process, on host {}: this one "
                               "is superseded",
                               TaskText(m.task), m.host),
                   false};
  return Refusal{ExitCode::kConfiguration,
                 fmt::format("another process is {} already, on host {}: two processes were "
                             "given the same task",
                             TaskText(m.task), m.host),
                 false};
}

// `key` as FirstDifference gives it.
std::string DifferingJob(const std::string& task, const std::string& key) {
  if (key.starts_with(kDigestsPrefix)) return OtherFile(task, key);
  return fmt::format(
      "{} was started with another job than the chief: they differ in '{}'; give "
      "all tasks the same job file and --set arguments",
      TaskText(task), key);
}

}  // namespace

int FindMember(const JobState& state, const std::string& task) {
  for (int i = 0; i < static_cast<int>(state.members.size()); ++i) {
    if (state.members[i].task == task) return i;
  }
  return -1;
}

std::optional<Refusal> Admit(MonotonicTime now, const proto::Hello& hello, const JobState& state,
                             const AdmissionOptions& o) {
  const int member = FindMember(state, hello.task());
  // Nobody else holds the place: what refuses this one keeps the job from starting.
  const bool vacant = member >= 0 && !state.members[member].joined && state.generation == 0;
  if (hello.protocol() != kControlProtocol)
    return Refusal{ExitCode::kConfiguration,
                   fmt::format("{} speaks control protocol {}, the chief {}: start all tasks from "
                               "one version of Muster",
                               TaskText(hello.task()), hello.protocol(), kControlProtocol),
                   vacant};
  if (auto refusal = CheckCluster(hello, state, vacant, o)) return refusal;
  if (auto refusal = CheckNamesake(now, hello, state.members[member], o)) return refusal;
  if (!hello.run_id().empty() && hello.run_id() != o.run_id)
    return Refusal{ExitCode::kRetryable,
                   fmt::format("{} holds state of run {}, the chief runs {}: restart it",
                               TaskText(hello.task()), hello.run_id(), o.run_id),
                   false};
  if (hello.job() != o.job && o.differing_job_key) {
    const std::string key = o.differing_job_key(o.job, hello.job());
    if (!key.empty())
      return Refusal{ExitCode::kConfiguration, DifferingJob(hello.task(), key), vacant};
  }
  return std::nullopt;
}

}  // namespace muster
