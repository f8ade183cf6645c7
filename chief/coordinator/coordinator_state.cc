#include "chief/coordinator/coordinator_state.h"

#include <fmt/format.h>

#include "chief/coordinator/admission/admission.h"
#include "chief/coordinator/admission/convert.h"
#include "common/base/json/utf8.h"
#include "common/base/logging.h"
#include "common/base/suppressed.h"

namespace muster::chief {

namespace {

std::vector<TaskId> TasksOf(const std::vector<DeclaredMember>& members) {
  std::vector<TaskId> tasks;
  for (const DeclaredMember& member : members) tasks.push_back(member.task);
  return tasks;
}

}  // namespace

CoordinatorState::CoordinatorState(const CoordinatorOptions& coordinator_options)
    : options(coordinator_options),
      policy(MembershipPolicy::Of(options.decision)),
      slots(options.members.size()),
      admission(options.admission),
      stats(TasksOf(options.members), options.on_straggler) {
  admission.first_term = admission.term;
  AdmitNewest();
  job.started = job.stage_since = clock.Now();
  for (const DeclaredMember& declared : options.members) {
    MemberInfo member;
    member.declared = declared;
    job.members.push_back(std::move(member));
  }
}

void CoordinatorState::SendAll(const proto::CoordinatorMessage& message) {
  const Session::Message shared = Session::Encode(message);
  for (MemberSlot& slot : slots)
    if (slot.session) slot.session->Send(shared);
}

// The job does not wait for this member any more. It fails, unless the policy lets it continue
// without the member.
bool CoordinatorState::TakeDeath(int member, const std::string& message) {
  Wake();
  MemberInfo* m = &job.members[member];
  m->process.gone = true;
  if (m->process.connected) {
    m->process.connected = false;
    m->process.broken_at = clock.Now();
  }
  const uint64_t lost = slots[member].lost;
  if (lost != 0 && options.events != nullptr)
    options.events->OnLost(m->declared.task, lost, message, /*ended=*/true);
  if (policy->ContinueWithout(member, message, &job)) return true;
  if (m->failure) return false;
  std::string why = message;
  // The member may have reached a later step since its last report.
  if (m->in_generation) why += fmt::format("; last heard of in step {}", m->report.step);
  m->failure = ReportedFailure{ExitCode::kRetryable, why,        "", NewestStep(job, *m),
                               m->report.phase,      clock.Now()};
  return false;
}

void CoordinatorState::CheckDeaths(PausingTime now) {
  // The process's own last messages may arrive this much later than the report of its end.
  constexpr Duration kLate = std::chrono::seconds(1);
  for (int i = 0; i < static_cast<int>(slots.size()); ++i) {
    if (!slots[i].death) continue;
    const MemberInfo& m = job.members[i];
    const MemberSlot::Death death = *slots[i].death;
    if (!Lives(now, m)) {
      slots[i].death.reset();
      TakeDeath(i, death.why);
    } else if (m.process.last_heard - death.at >= kLate) {
      slots[i].death.reset();
      LogWarning("{} is alive, although a report said that it {}", m.declared.task.DisplayName(),
                 death.why);
    }
  }
}

void CoordinatorState::ReportEvent(proto::RunEvent::Kind kind, const std::string& task,
                                   int64_t step, const std::string& text) const {
  if (!options.on_event) return;
  proto::RunEvent event;
  event.set_kind(kind);
  event.set_task(task);
  event.set_step(step);
  event.set_text(ValidUtf8(text));
  options.on_event(event);
}

// Limits the lines, because a caller may report in a loop.
void CoordinatorState::LogFailure(const proto::FailureReport& report, std::string_view what) {
  int64_t left_out = 0;
  if (!failure_lines.Take(&left_out)) return;
  LogWarning("{} on host {}{}: {}{}", TaskText(report.task()), report.host(), what,
             report.message(), SuppressedText(left_out));
}

std::string CoordinatorState::TakeFailure(const proto::FailureReport& report, bool* try_again) {
  const int member = FindMember(job, report.task());
  const std::string who = TaskText(report.task());
  if (!report.cluster_digest().empty() && report.cluster_digest() != admission.cluster_digest)
    return who + " belongs to another cluster";
  if (member < 0) {
    LogFailure(report, " failed");
    return who + " is not a member: its failure does not end the job";
  }
  MemberInfo& m = job.members[member];
  if (report.gone()) {
    // A late report is about an earlier process, which another one has replaced.
    if (report.pid() != 0 && m.process.joined && m.process.pid != report.pid())
      return fmt::format("{} is process {} now", who, m.process.pid);
    if (Lives(clock.Now(), m)) {
      slots[member].death = MemberSlot::Death{report.message(), clock.Now()};
      return who + " has a session: its end counts once that has broken";
    }
    return TakeDeath(member, report.message()) ? "the job may continue without it" : "";
  }
  if (m.process.joined && m.process.connected && report.incarnation() != m.process.incarnation)
    return "another process is " + who;
  const ExitCode code = ExitCodeFromInt(report.exit_code());
  if (code == ExitCode::kDone) return "exit code 0 is not a failure";
  if (code == ExitCode::kRetryable && policy->WaitsForRestart(m)) {
    m.why_missing = report.message();
    LogFailure(report, "");
    return "a restart can help: the job waits for it";
  }
  // A replacement may start on a host without the right devices or files. This must not end the
  // job.
  if (code == ExitCode::kConfiguration && job.generation != 0 &&
      (!m.process.joined || report.incarnation() != m.process.incarnation)) {
    m.why_missing = report.message();
    LogFailure(report, " cannot take its place");
    *try_again = true;
    return "the job continues, and waits for another process";
  }
  if (!m.failure)
    m.failure = ReportedFailure{
        code,       report.message(), report.host(), report.step(), PhaseFromWire(report.phase()),
        clock.Now()};
  Wake();
  return "";
}

}  // namespace muster::chief
