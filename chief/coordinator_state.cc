#include "chief/coordinator_state.h"

#include <fmt/format.h>

#include "chief/admission.h"
#include "chief/convert.h"
#include "common/base/logging.h"

namespace muster {

CoordinatorState::CoordinatorState(const CoordinatorOptions& coordinator_options)
    : options(coordinator_options),
      policy(MembershipPolicy::Of(options.decision)),
      slots(options.members.size()),
      admission(options.admission) {
  job.started = job.stage_since = clock.Now();
  for (const DeclaredMember& declared : options.members) {
    MemberState member;
    member.declared = declared;
    job.members.push_back(std::move(member));
  }
}

void CoordinatorState::SendAll(const proto::CoordinatorMessage& message) {
  const Session::Message shared = Session::Encode(message);
  for (MemberSlot& slot : slots)
    if (slot.session) slot.session->Send(shared);
}

// There is no use in waiting for it, unless others may go on without.
std::string CoordinatorState::TakeDeath(const proto::FailureReport& report, int member) {
  Wake();
  MemberState* m = &job.members[member];
  m->process.gone = true;
  if (m->process.connected) {
    m->process.connected = false;
    m->process.broken_at = clock.Now();
  }
  if (policy->GoesOnWithout(member, report.message(), &job)) return "the job may go on without it";
  if (m->failure) return "";
  std::string why = report.message();
  // Its last report may be older than its end by an interval.
  if (m->in_generation) why += fmt::format("; last heard of in step {}", m->report.step);
  m->failure = ReportedFailure{ExitCode::kRetryable, why,        "", NewestStep(job, *m),
                               m->report.phase,      clock.Now()};
  return "";
}

std::string CoordinatorState::TakeFailure(const proto::FailureReport& report, bool* try_again) {
  const int member = FindMember(job, report.task());
  const std::string who = TaskText(report.task());
  if (!report.cluster_digest().empty() && report.cluster_digest() != admission.cluster_digest)
    return who + " belongs to another cluster";
  if (member < 0) {
    LogWarning("{} on host {} failed: {}", who, report.host(), report.message());
    return who + " is not a member: its failure does not end the job";
  }
  MemberState& m = job.members[member];
  if (report.gone()) return TakeDeath(report, member);
  if (m.process.joined && m.process.connected && report.incarnation() != m.process.incarnation)
    return "another process is " + who;
  const ExitCode code = ExitCodeFromInt(report.exit_code());
  if (code == ExitCode::kDone) return "exit code 0 is no failure";
  if (code == ExitCode::kRetryable && policy->WaitsForRestart(m)) {
    m.why_missing = report.message();
    LogWarning("{} on host {}: {}", who, report.host(), report.message());
    return "a restart can help: the job waits for it";
  }
  // What takes a lost member's place, on a host without the right devices or files, is no fault of
  // the job's.
  if (code == ExitCode::kConfiguration && !m.process.joined && job.generation != 0) {
    m.why_missing = report.message();
    LogWarning("{} on host {} cannot take its place: {}", who, report.host(), report.message());
    *try_again = true;
    return "the job goes on, and waits for another process";
  }
  if (!m.failure)
    m.failure = ReportedFailure{
        code,       report.message(), report.host(), report.step(), PhaseFromWire(report.phase()),
        clock.Now()};
  Wake();
  return "";
}

}  // namespace muster
