// What members say over their sessions, and the unary RPCs.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "chief/convert.h"
#include "chief/coordinator_impl.h"
#include "common/base/logging.h"

namespace muster {

// ---- sessions ----

int CoordinatorImpl::MemberOfLocked(const muster::Session* session) const {
  const int member = session->member;  // unless another session of its has replaced it
  return member >= 0 && slots_[member].session.get() == session ? member : -1;
}

void CoordinatorImpl::OnMessage(const std::shared_ptr<muster::Session>& session,
                                const proto::MemberMessage& message) {
  absl::MutexLock lock(&mu_);
  if (message.has_hello()) return HelloLocked(session, message.hello());
  const int member = MemberOfLocked(session.get());
  if (member >= 0 && message.has_report()) ReportLocked(member, message.report());
}

void CoordinatorImpl::OnBroken(const std::shared_ptr<muster::Session>& session) {
  absl::MutexLock lock(&mu_);
  const int member = MemberOfLocked(session.get());
  if (member < 0) return;
  slots_[member].session = nullptr;
  state_.members[member].connected = false;
  state_.members[member].broken_at = Clock::now();
  WakeLocked();
}

void CoordinatorImpl::HelloLocked(const std::shared_ptr<muster::Session>& session,
                                  const proto::Hello& hello) {
  const MonotonicTime now = Clock::now();
  const int member = FindMember(state_, hello.task());
  proto::CoordinatorMessage message;
  if (state_.stage == Stage::kEnding && !state_.tell_all &&
      (member < 0 || state_.members[member].incarnation != hello.incarnation())) {
    *message.mutable_verdict() = VerdictToProto(state_.verdict);
    session->Send(std::move(message));
    return session->Close();
  }
  if (!options_.decision.recover && state_.generation == 0 && hello.generation() != 0 &&
      member > 0) {
    // The generation went with the chief before this one; this process ends as its others do.
    *message.mutable_verdict() = VerdictToProto(
        {ExitCode::kRetryable, state_.members[0].task, "", -1, Phase::kStarting,
         "lost: a new process took its place, which knows nothing of this generation"});
    session->Send(std::move(message));
    return session->Close();
  }
  AdoptRunLocked(now, hello);
  auto refusal = Admit(now, hello, state_, admission_);
  if (superseded_.contains(hello.incarnation()))
    refusal = Refusal{ExitCode::kRetryable,
                      fmt::format("{} was lost and another process took its place: this one is "
                                  "superseded",
                                  TaskText(hello.task())),
                      false};
  // A generation that cannot be formed again ends by the loss, which names who was lost.
  const bool together = state_.stage == Stage::kForming || state_.stage == Stage::kRunning;
  if (!refusal && together && !options_.decision.recover &&
      state_.members[member].incarnation != hello.incarnation())
    refusal = Refusal{ExitCode::kRetryable,
                      fmt::format("{} was a member of a running generation and was lost; this "
                                  "process cannot take its place in the same run",
                                  TaskText(hello.task())),
                      false};
  if (!refusal) return BindLocked(session, hello, member);

  LogWarning("refused {} on host {}: {}", TaskText(hello.task()), hello.host(), refusal->message);
  const Verdict verdict{refusal->code,    hello.task(),    hello.host(), -1,
                        Phase::kStarting, refusal->message};
  if (member >= 0) {
    MemberState& m = state_.members[member];
    if (!m.joined) m.why_missing = "refused: " + refusal->message;
    if (refusal->ends_job && !m.failure)
      m.failure =
          ReportedFailure{verdict.code, verdict.message, verdict.host, -1, Phase::kStarting, now};
    if (state_.tell_all) m.acknowledged = true;  // all that there is to tell
    // A new process with this task: the one whose session broke is no more.
    if (m.joined && !m.connected && m.incarnation != hello.incarnation()) m.gone = true;
  }
  *message.mutable_refusal() = VerdictToProto(verdict);
  session->Send(std::move(message));
  session->Close();
  WakeLocked();
}

// A chief that lost its own record of the run, or never had one, goes on with the run whose state
// its members hold. What is left of another job, with another program or other settings, is none.
void CoordinatorImpl::AdoptRunLocked(MonotonicTime now, const proto::Hello& hello) {
  if (!admission_.fresh_run || state_.generation != 0 || hello.run_id().empty()) return;
  AdmissionOptions adopted = admission_;
  adopted.run_id = hello.run_id();
  if (Admit(now, hello, state_, adopted)) return;
  LogInfo("going on with run {}, of which {} holds state", hello.run_id(), TaskText(hello.task()));
  admission_.fresh_run = false;
  admission_.run_id = hello.run_id();
  if (options_.on_run_id) options_.on_run_id(hello.run_id());
  SendAllLocked(WelcomeLocked());
}

proto::CoordinatorMessage CoordinatorImpl::WelcomeLocked() const {
  proto::CoordinatorMessage message;
  message.mutable_welcome()->set_run_id(admission_.run_id);
  message.mutable_welcome()->set_epoch(epoch_);
  message.mutable_welcome()->set_job(admission_.job);
  message.mutable_welcome()->set_pid(getpid());
  return message;
}

// The member gave the chief up before the chief gave it up, and its communicators with it.
bool CoordinatorImpl::GaveUpLocked(const MemberState& m, const proto::Hello& hello) const {
  const bool together = state_.stage == Stage::kForming || state_.stage == Stage::kRunning;
  return options_.decision.recover && together && m.in_generation && hello.generation() == 0 &&
         hello.highest_generation() == state_.generation;
}

void CoordinatorImpl::BindLocked(const std::shared_ptr<muster::Session>& session,
                                 const proto::Hello& hello, int member) {
  MemberState& m = state_.members[member];
  Slot& slot = slots_[member];
  const MonotonicTime now = Clock::now();
  if (!m.joined || m.incarnation != hello.incarnation()) {
    // The others must not wait for the process that was replaced.
    if (m.joined && slot.admitted != 0) {
      ReplaceLocked(member);
    } else if (m.joined && m.in_generation && state_.stage != Stage::kJoining) {
      const std::string why =
          fmt::format("{} was lost: a new process took its place", TaskText(m.task));
      LogWarning("{}", why);
      AbortLocked(now, why);
    }
    if (m.joined) superseded_.insert(m.incarnation);
    if (slot.lost != 0 && slot.lost != hello.incarnation()) superseded_.insert(slot.lost);
    slot.lost = 0;
    MemberState fresh;
    fresh.task = m.task;
    fresh.address = m.address;
    fresh.in_generation = m.in_generation;
    fresh.failure = m.failure;
    fresh.phase_since = now;
    fresh.again = !hello.run_id().empty();
    m = std::move(fresh);
    for (const auto& [name, version] : options_.versions) {
      const auto theirs = hello.versions().find(name);
      if (theirs != hello.versions().end() && theirs->second != version)
        LogWarning("{} runs {} {}, the chief {}", TaskText(m.task), name, theirs->second, version);
    }
  } else if (options_.decision.independent && hello.generation() == 0) {
    m.in_generation = false;  // it had given the chief up, and comes again with all it holds
    m.again = !hello.run_id().empty();
  } else if (GaveUpLocked(m, hello)) {
    const std::string why =
        fmt::format("{} had lost touch with the chief and left the generation", TaskText(m.task));
    LogWarning("{}", why);
    AbortLocked(now, why);
  }
  m.joined = m.connected = true;
  m.gone = false;
  m.last_heard = now;
  m.incarnation = hello.incarnation();
  m.host = hello.host();
  m.pid = hello.pid();
  if (!hello.run_id().empty() && state_.generation == 0)
    state_.adopted_size = std::max<int>(state_.adopted_size, hello.generation_size());
  if (hello.highest_generation() > state_.generation) {
    const uint32_t above = static_cast<uint32_t>(hello.highest_generation() >> 32) + 1;
    if (above > epoch_) {
      epoch_ = above;
      counter_ = 0;
      if (options_.on_epoch) options_.on_epoch(epoch_);
    }
  }
  if (auto old = std::move(slot.session)) old->Kill();
  slot.session = session;
  session->member = member;
  slot.hello = hello;
  slot.hello.clear_cluster();  // compared, and long
  slot.hello.clear_job();
  LogDebug("{} joined from host {} (pid {})", TaskText(m.task), m.host, hello.pid());
  CatchUpLocked(member);
  WakeLocked();
}

void CoordinatorImpl::CatchUpLocked(int member) {
  muster::Session& session = *slots_[member].session;
  proto::CoordinatorMessage message;
  session.Send(WelcomeLocked());
  if (state_.stop_requested) {
    message.mutable_pulse()->set_stop_requested(true);
    session.Send(message);
  }
  const MemberState& m = state_.members[member];
  const bool alone = options_.decision.independent;
  const bool current = m.in_generation && state_.stage != Stage::kJoining;
  const uint64_t generation = slots_[member].hello.generation();
  const uint64_t own = alone ? m.generation : state_.generation;
  if (state_.stage != Stage::kEnding && generation != 0 && !(current && generation == own)) {
    // It slept, or was cut off, while its generation ended: it joins as new.
    message.mutable_abort()->set_generation(generation);
    message.mutable_abort()->set_reason(
        abort_reason_.empty() ? "the chief was lost: a new process took its place" : abort_reason_);
    session.Send(message);
  }
  switch (state_.stage) {
    case Stage::kJoining:
      return;
    case Stage::kForming:
      if (current) session.Send(formation_);
      return;
    case Stage::kRunning:
      if (!current) return;
      session.Send(alone ? slots_[member].formation : formation_);
      message.set_start(own);
      return session.Send(message);
    case Stage::kEnding:
      *message.mutable_verdict() = VerdictToProto(state_.verdict);
      return session.Send(message);
  }
}

void CoordinatorImpl::ReportLocked(int member, const proto::Report& report) {
  MemberState& m = state_.members[member];
  // A plain heartbeat is looked at with the next tick.
  if (ApplyReport(report, Clock::now(), &m)) WakeLocked();
  if (report.stop_requested()) StopLocked();
  if (report.leave_requested() && !m.leaving) {
    m.leaving = true;
    WakeLocked();
  }
  slots_[member].session->SendIfIdle(state_.stop_requested ? stop_pulse_ : pulse_);
}

void CoordinatorImpl::SendAllLocked(proto::CoordinatorMessage message) {
  const auto shared = std::make_shared<proto::CoordinatorMessage>(std::move(message));
  for (Slot& slot : slots_)
    if (slot.session) slot.session->Send(shared);
}

// ---- RPCs ----

grpc::ServerBidiReactor<proto::MemberMessage, proto::CoordinatorMessage>* CoordinatorImpl::Session(
    grpc::CallbackServerContext* context) {
  return muster::Session::Open(this, context);
}

// There is no use in waiting for it, unless others may go on without.
std::string CoordinatorImpl::TakeDeathLocked(const proto::FailureReport& report, MemberState* m) {
  WakeLocked();
  m->gone = true;
  if (m->connected) {
    m->connected = false;
    m->broken_at = Clock::now();
  }
  if (options_.decision.min_members > 0) return "the job may go on without it";
  const bool begun = state_.generation != 0 || state_.adopted_size != 0;
  if (options_.decision.independent && begun) {
    m->abandoned = report.message();
    return "the job may go on without it";
  }
  if (m->failure) return "";
  std::string why = report.message();
  // Its last report may be older than its end by an interval.
  if (m->in_generation) why += fmt::format("; last heard of in step {}", m->step);
  m->failure = ReportedFailure{ExitCode::kRetryable,   why,      "",
                               NewestStep(state_, *m), m->phase, Clock::now()};
  return "";
}

std::string CoordinatorImpl::TakeFailureLocked(const proto::FailureReport& report) {
  const int member = FindMember(state_, report.task());
  const std::string who = TaskText(report.task());
  if (!report.cluster_digest().empty() && report.cluster_digest() != admission_.cluster_digest)
    return who + " belongs to another cluster";
  if (member < 0) {
    LogWarning("{} on host {} failed: {}", who, report.host(), report.message());
    return who + " is not a member: its failure does not end the job";
  }
  MemberState& m = state_.members[member];
  if (report.gone()) return TakeDeathLocked(report, &m);
  if (m.joined && m.connected && report.incarnation() != m.incarnation)
    return "another process is " + who;
  const ExitCode code = ExitCodeFromInt(report.exit_code());
  if (code == ExitCode::kDone) return "exit code 0 is no failure";
  if (code == ExitCode::kRetryable && (!m.joined || options_.decision.independent)) {
    m.why_missing = report.message();
    LogWarning("{} on host {}: {}", who, report.host(), report.message());
    return "a restart can help: the job waits for it";
  }
  if (!m.failure)
    m.failure = ReportedFailure{
        code,        report.message(), report.host(), report.step(), PhaseFromWire(report.phase()),
        Clock::now()};
  WakeLocked();
  return "";
}

grpc::ServerUnaryReactor* CoordinatorImpl::ReportFailure(grpc::CallbackServerContext* context,
                                                         const proto::FailureReport* request,
                                                         proto::FailureReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status refusal = rpc::RequireDeadline(*context, "ReportFailure");
  if (refusal.ok()) {
    absl::MutexLock lock(&mu_);
    reply->set_reason(state_.stage == Stage::kEnding ? "the job has ended already"
                                                     : TakeFailureLocked(*request));
    reply->set_accepted(reply->reason().empty());
  }
  reactor->Finish(refusal);
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorImpl::Status(grpc::CallbackServerContext* context,
                                                  const proto::StatusRequest*,
                                                  proto::StatusReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const grpc::Status refusal = rpc::RequireDeadline(*context, "Status");
  if (refusal.ok()) {
    absl::MutexLock lock(&mu_);
    const MonotonicTime now = Clock::now();
    reply->set_run_id(admission_.run_id);
    reply->set_stage(std::string(StageName(state_.stage)));
    reply->set_generation(state_.generation);
    reply->set_uptime_seconds(Seconds(now - state_.started));
    reply->set_roster(RosterLine(now, state_));
    for (size_t i = 0; i < slots_.size(); ++i)
      *reply->add_members() = StatusOfMember(state_.members[i], slots_[i].hello, now);
    if (state_.stage == Stage::kEnding) *reply->mutable_verdict() = VerdictToProto(state_.verdict);
  }
  reactor->Finish(refusal);
  return reactor;
}

}  // namespace muster
