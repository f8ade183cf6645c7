#include "chief/coordinator/coordinator_registration.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "chief/coordinator/admission/convert.h"
#include "common/base/logging.h"
#include "common/base/suppressed.h"

namespace muster::chief {

void Registration::OnHello(const std::shared_ptr<Session>& session, const proto::Hello& hello,
                           const Differences& differences) {
  const PausingTime now = state_.clock.Now();
  const int member = FindMember(state_.job, hello.task());
  if (state_.job.stage == JobStage::kEnding && !state_.job.tell_all &&
      (member < 0 || state_.job.members[member].process.incarnation != hello.incarnation())) {
    if (OfTheNextStart(member, hello, differences))
      return TellToRetry(session, hello, member, "the job before is ending");
    proto::CoordinatorMessage message;
    *message.mutable_verdict() = VerdictToProto(state_.job.verdict);
    session->Send(std::move(message));
    return session->Close();
  }
  if (Adopts(now, hello, differences))
    return TellToRetry(session, hello, member, "the chief adopts its run");
  auto refusal = Admit(now, hello, differences, state_.job, state_.admission);
  if (!refusal && state_.job.generation != 0) refusal = CheckDevices(hello, OtherDevices(member));
  if (superseded_.contains(hello.incarnation()))
    refusal = Refusal{ExitCode::kRetryable,
                      fmt::format("{} was lost and another process took its place: this one is "
                                  "superseded",
                                  TaskText(hello.task())),
                      false};
  if (!refusal) return Bind(session, hello, member);
  if (refusal->tries_again) return TellToRetry(session, hello, member, refusal->message);
  Refuse(session, hello, member, *refusal);
}

std::vector<MemberDevices> Registration::OtherDevices(int member) const {
  std::vector<MemberDevices> held;
  for (int i = 0; i < static_cast<int>(state_.slots.size()); ++i) {
    const MemberInfo& m = state_.job.members[i];
    const proto::Hello& hello = state_.slots[i].hello;
    if (i == member || !m.process.joined || !hello.has_held()) continue;
    held.push_back(DevicesOf(m.declared.task.ToString(), hello.held()));
  }
  return held;
}

bool Registration::OfTheNextStart(int member, const proto::Hello& hello,
                                  const Differences& differences) const {
  const ExitCode code = state_.job.verdict.code;
  if (member < 0 || (code != ExitCode::kDone && code != ExitCode::kPreempted)) return false;
  const bool other_cluster = hello.cluster_digest() != state_.admission.cluster_digest;
  if (other_cluster || !differences.job_key.empty()) return true;
  // A completed job has no work left for the task. A stopped job resumes later.
  const bool had_process =
      state_.job.members[member].process.incarnation != 0 || state_.slots[member].lost != 0;
  return code == ExitCode::kPreempted && had_process;
}

void Registration::TellToRetry(const std::shared_ptr<Session>& session, const proto::Hello& hello,
                               int member, const std::string& why) {
  int64_t left_out = 0;
  if (std::exchange(state_.slots[member].wait_logged, hello.incarnation()) != hello.incarnation() &&
      lines_.Take(&left_out))
    LogWarning("{} on host {} (pid {}) waits: {}", TaskText(hello.task()), hello.host(),
               hello.pid(), why);
  session->Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, why));
}

void Registration::Refuse(const std::shared_ptr<Session>& session, const proto::Hello& hello,
                          int member, const Refusal& refusal) {
  if (int64_t left_out = 0; lines_.Take(&left_out))
    LogWarning("refused {} on host {}: {}{}", TaskText(hello.task()), hello.host(), refusal.message,
               SuppressedText(left_out));
  const Verdict verdict{refusal.code, hello.task(),     hello.host(),
                        -1,           Phase::kStarting, refusal.message};
  if (member >= 0) {
    MemberInfo& m = state_.job.members[member];
    if (!m.process.joined) m.why_missing = "refused: " + refusal.message;
    if (refusal.ends_job && !m.failure)
      m.failure = ReportedFailure{verdict.code, verdict.message,  verdict.host,
                                  -1,           Phase::kStarting, state_.clock.Now()};
    if (state_.job.tell_all) m.report.acknowledged = true;  // The member needs only the verdict.
    // The Hello is from a new process, so the old process with the broken session has ended.
    if (m.process.joined && !m.process.connected && m.process.incarnation != hello.incarnation())
      m.process.gone = true;
  }
  proto::CoordinatorMessage message;
  *message.mutable_refusal() = VerdictToProto(verdict);
  session->Send(std::move(message));
  session->Close();
  state_.Wake();
}

// A chief that lost its record of the run, or never had one, adopts the run whose state its members
// hold. State of another job (another program or other settings) does not count.
bool Registration::Adopts(PausingTime now, const proto::Hello& hello,
                          const Differences& differences) {
  if (!state_.admission.fresh_run || state_.job.generation != 0 || hello.run_id().empty())
    return false;
  AdmissionOptions adopted = state_.admission;
  adopted.run_id = hello.run_id();
  if (Admit(now, hello, differences, state_.job, adopted)) return false;
  if (adopting_.empty()) {
    LogInfo("the chief continues run {}: {} holds its state", hello.run_id(),
            TaskText(hello.task()));
    adopting_ = hello.run_id();
    state_.Wake();
  }
  return adopting_ == hello.run_id();
}

void Registration::Adopted(const std::string& run_id, const absl::Status& written) {
  adopting_.clear();
  if (!written.ok())
    return LogWarning("the chief cannot continue run {}: {}", run_id, Message(written));
  state_.admission.fresh_run = false;
  state_.admission.run_id = run_id;
  state_.SendAll(Welcome());
}

proto::CoordinatorMessage Registration::Welcome() const {
  proto::CoordinatorMessage message;
  message.mutable_welcome()->set_run_id(state_.admission.run_id);
  message.mutable_welcome()->set_epoch(state_.admission.term);
  message.mutable_welcome()->set_job(state_.admission.job);
  message.mutable_welcome()->set_pid(getpid());
  return message;
}

void Registration::TakeProcess(PausingTime now, const proto::Hello& hello, int member) {
  MemberInfo& m = state_.job.members[member];
  MemberSlot& slot = state_.slots[member];
  if (m.process.joined) {
    state_.ReportEvent(proto::RunEvent::LOST, m.declared.task.ToString(), m.report.step,
                       m.declared.task.DisplayName() + " was lost: a new process took its place");
    if (m.admitted != 0) {
      const std::string why = "lost: a new process took its place";
      LogWarning("{} {}", m.declared.task.DisplayName(), why);
      if (state_.options.events != nullptr)
        state_.options.events->OnLost(m.declared.task, m.admitted, why, /*ended=*/true);
    }
    if (const std::string why = state_.policy->Replace(member, &state_.job); !why.empty()) {
      LogWarning("{}", why);
      actions_.Abort(now, why);
    }
    superseded_.insert(m.process.incarnation);
  }
  if (slot.lost != 0 && slot.lost != hello.incarnation()) superseded_.insert(slot.lost);
  slot.lost = 0;
  slot.death.reset();
  const MemberInfo before = m.process.joined ? state_.policy->Absent(now, state_.job, m) : m;
  MemberInfo fresh;
  fresh.declared = m.declared;
  fresh.process = ProcessOf(hello, now);
  fresh.report.phase_since = now;
  fresh.in_generation = m.in_generation;
  fresh.failure = m.failure;
  fresh.quick_losses = before.quick_losses;
  fresh.backoff_until = before.backoff_until;
  m = std::move(fresh);
  for (const auto& [name, version] : state_.options.versions) {
    const auto theirs = hello.versions().find(name);
    if (theirs != hello.versions().end() && theirs->second != version)
      LogWarning("{} runs {} {}, the chief {}", m.declared.task.DisplayName(), name, theirs->second,
                 version);
  }
  state_.ReportEvent(proto::RunEvent::JOINED, m.declared.task.ToString(), -1,
                     fmt::format("{} joined from host {} (pid {})", m.declared.task.DisplayName(),
                                 m.process.host, m.process.pid));
}

void Registration::RaiseTerm(uint64_t highest_generation) {
  if (highest_generation <= state_.job.generation) return;
  const uint32_t above = static_cast<uint32_t>(highest_generation >> 32) + 1;
  if (above <= state_.admission.term) return;
  state_.admission.term = above;
  state_.counter = 0;
  state_.AdmitNewest();
}

void Registration::Bind(const std::shared_ptr<Session>& session, const proto::Hello& hello,
                        int member) {
  MemberInfo& m = state_.job.members[member];
  MemberSlot& slot = state_.slots[member];
  const PausingTime now = state_.clock.Now();
  const bool holds_state = !hello.run_id().empty();
  if (!m.process.joined || m.process.incarnation != hello.incarnation()) {
    TakeProcess(now, hello, member);
  } else if (const std::string why =
                 state_.policy->Return({.generation = hello.generation(),
                                        .highest_generation = hello.highest_generation(),
                                        .holds_state = holds_state},
                                       member, &state_.job);
             !why.empty()) {
    LogWarning("{}", why);
    actions_.Abort(now, why);
  }
  m.process.connected = true;
  m.process.gone = false;
  m.process.last_heard = now;
  if (holds_state && state_.job.generation == 0)
    state_.job.adopted_size = std::clamp<int>(hello.generation_size(), state_.job.adopted_size,
                                              static_cast<int>(state_.job.members.size()));
  RaiseTerm(hello.highest_generation());
  if (auto old = std::move(slot.session)) old->Kill();
  slot.session = session;
  session->member = member;
  slot.hello = hello;
  slot.hello.clear_cluster();  // Already compared, and long.
  slot.hello.clear_job();
  LogDebug("{} joined from host {} (pid {})", m.declared.task.DisplayName(), m.process.host,
           hello.pid());
  CatchUp(member);
  state_.Wake();
}

void Registration::CatchUp(int member) {
  Session& session = *state_.slots[member].session;
  proto::CoordinatorMessage message;
  session.Send(Welcome());
  if (state_.job.stop_requested) {
    message.mutable_pulse()->set_stop_requested(true);
    session.Send(message);
  }
  const MemberInfo& m = state_.job.members[member];
  const bool current = m.in_generation && state_.job.stage != JobStage::kJoining;
  const uint64_t generation = state_.slots[member].hello.generation();
  const uint64_t own = state_.policy->GenerationOf(state_.job, m);
  if (state_.job.stage != JobStage::kEnding && generation != 0 && !(current && generation == own)) {
    // The member was suspended or disconnected when its generation ended. It joins as a new member.
    message.mutable_abort()->set_generation(generation);
    message.mutable_abort()->set_reason(state_.abort_reason.empty()
                                            ? "the chief was lost: a new process took its place"
                                            : state_.abort_reason);
    session.Send(message);
  }
  switch (state_.job.stage) {
    case JobStage::kJoining:
      return;
    case JobStage::kForming:
      if (current) session.Send(state_.slots[member].formation);
      return;
    case JobStage::kRunning:
      if (!current) return;
      session.Send(state_.slots[member].formation);
      message.set_start(own);
      return session.Send(message);
    case JobStage::kEnding:
      *message.mutable_verdict() = VerdictToProto(state_.job.verdict);
      return session.Send(message);
  }
}

}  // namespace muster::chief
