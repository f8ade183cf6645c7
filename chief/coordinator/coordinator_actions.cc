#include "chief/coordinator/coordinator_actions.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <utility>

#include "chief/coordinator/admission/convert.h"
#include "common/base/logging.h"

namespace muster::chief {
namespace {

std::string RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t n = getrandom(bytes.data() + have, size - have, 0);
    if (n > 0) have += static_cast<size_t>(n);
  }
  return bytes;
}

// `why` may begin with the member's name.
std::string LossText(const std::string& name, bool leaves, const std::string& why) {
  if (why.starts_with(name + " ")) return why;
  return fmt::format("{} {}: {}", name, leaves ? "leaves" : "was lost", why);
}

void LogHeld(PausingTime now, const MemberInfo& m) {
  if (m.backoff_until > now)
    LogWarning(
        "{} was lost {} times in its first step: the chief admits it again after {:.0f} s, or when "
        "it is needed",
        m.declared.task.DisplayName(), m.quick_losses, Seconds(m.backoff_until - now));
}

proto::RosterEntry EntryOf(const proto::Hello& hello) {
  proto::RosterEntry entry;
  entry.set_task(hello.task());
  entry.set_host_id(hello.host_id());
  entry.set_data_address(hello.data_address());
  entry.set_num_replicas(hello.num_replicas());
  *entry.mutable_cpus() = hello.cpus();
  if (hello.has_held()) *entry.mutable_held() = hello.held();
  return entry;
}

}  // namespace

void CoordinatorActions::Stop() {
  if (state_.job.stop_requested) return;
  state_.job.stop_requested = true;
  proto::CoordinatorMessage message;
  message.mutable_pulse()->set_stop_requested(true);
  state_.SendAll(message);
  if (state_.options.events != nullptr) state_.options.events->OnStopRequested();
  state_.Wake();
}

void CoordinatorActions::Act(PausingTime now, const Decision& decision) {
  if (decision.reason != last_reason_ && decision.action == Action::kWait)
    LogDebug("coordinator: {}", decision.reason);
  last_reason_ = decision.reason;
  switch (decision.action) {
    case Action::kWait:
      return;
    case Action::kForm:
      return Form(now, decision.member);
    case Action::kStart: {
      state_.job.stage = JobStage::kRunning;
      state_.job.stage_since = now;
      state_.job.failed_formations = 0;
      proto::CoordinatorMessage message;
      message.set_start(state_.job.generation);
      return state_.SendAll(message);
    }
    case Action::kStop:
      LogInfo("{}", decision.reason);
      return Stop();
    case Action::kDrop:
      if (decision.expel) {
        if (decision.verdict.code == ExitCode::kPreempted) {
          LogInfo("{}", decision.reason);
        } else {
          LogWarning("{}", decision.reason);
        }
        return Expel(now, decision.member, decision.verdict);
      }
      LogWarning("{} {}", state_.job.members[decision.member].declared.task.DisplayName(),
                 decision.reason);
      return Drop(now, decision.member, decision.reason);
    case Action::kAbortGeneration:
      LogWarning("{}", decision.reason);
      // If a member was lost, the failure does not mean that the links between the others are
      // broken.
      if (state_.job.stage == JobStage::kForming && decision.member < 0)
        ++state_.job.failed_formations;
      if (decision.expel) {
        Expel(now, decision.member, decision.verdict);
      } else if (decision.member >= 0) {
        Drop(now, decision.member, decision.reason);
        // The message has no task and host, because the verdict adds them.
        state_.job.members[decision.member].why_missing = decision.verdict.message;
      }
      return Abort(now, decision.reason);
    case Action::kEndJob:
      return End(now, decision.verdict, decision.member);
    case Action::kClose:
      if (decision.reason != "all members have left") LogWarning("{}", decision.reason);
      state_.closed = true;
      state_.ended.SignalAll();
      return;
  }
}

void CoordinatorActions::Form(PausingTime now, int member) {
  const bool joining = state_.job.stage == JobStage::kJoining;
  const std::string roster = joining ? RosterLine(now, state_.job) : "";
  ++state_.counter;
  state_.AdmitNewest();
  const NewGeneration formed = state_.policy->Form(now, state_.Newest(), member, &state_.job);
  const MemberInfo& newest = state_.job.members[formed.newest];
  proto::CoordinatorMessage message, start;
  proto::Formation& formation = *message.mutable_formation();
  formation.set_generation(formed.id);
  formation.set_ticket(RandomBytes(16));
  formation.set_newest_step(newest.report.last_step);
  int replicas = 0;
  for (const int i : formed.members) {
    if (i == formed.newest) formation.set_newest_rank(formation.members_size());
    *formation.add_members() = EntryOf(state_.slots[i].hello);
    replicas += state_.job.members[i].process.num_replicas;
  }
  start.set_start(formed.id);
  const Session::Message encoded = Session::Encode(message);
  for (const int i : formed.members) {
    state_.slots[i].formation = encoded;
    if (state_.slots[i].session == nullptr) continue;
    state_.slots[i].session->Send(encoded);
    if (formed.started) state_.slots[i].session->Send(start);
  }
  if (formed.started) {
    if (joining) LogInfo("run {}: {}", state_.admission.run_id, roster);
    return Admitted(formed);
  }
  const int members = formation.members_size();
  const int64_t step = formation.newest_step();
  state_.ReportEvent(
      proto::RunEvent::GENERATION, "", step,
      fmt::format("generation {}: {} member{}, {} replica{}", state_.counter, members,
                  members == 1 ? "" : "s", replicas, replicas == 1 ? "" : "s"));
  LogInfo("{} member{}, {} replica{}: generation {} of run {}{}", members, members == 1 ? "" : "s",
          replicas, replicas == 1 ? "" : "s", state_.counter, state_.admission.run_id,
          step <= 0 ? ""
                    : fmt::format(", with the state of {} after step {}",
                                  newest.declared.task.DisplayName(), step));
}

void CoordinatorActions::Admitted(const NewGeneration& formed) {
  const MemberInfo& newest = state_.job.members[formed.newest];
  LogInfo("{} on host {} joined{}", newest.declared.task.DisplayName(), newest.process.host,
          formed.again ? " again" : "");
  const proto::Hello& hello = state_.slots[formed.newest].hello;
  if (state_.options.events != nullptr)
    state_.options.events->OnAdmitted({newest.declared.task, newest.process.incarnation,
                                       hello.data_address(), hello.host_id(), newest.process.host,
                                       formed.again});
}

void CoordinatorActions::Drop(PausingTime now, int member, const std::string& why,
                              bool asked_to_exit) {
  MemberInfo& m = state_.job.members[member];
  if (state_.options.on_lost && !m.report.leaving)
    state_.options.on_lost({m.declared.task, m.process.pid, why, asked_to_exit, m.in_generation});
  state_.ReportEvent(proto::RunEvent::LOST, m.declared.task.ToString(), m.report.step,
                     LossText(m.declared.task.DisplayName(), m.report.leaving, why));
  MemberInfo absent = state_.policy->Absent(now, state_.job, m);
  absent.why_missing = why;
  LogHeld(now, absent);
  const uint64_t lost = m.process.incarnation;
  if (state_.options.events != nullptr && m.admitted != 0)
    state_.options.events->OnLost(m.declared.task, m.admitted, why, m.process.gone);
  m = std::move(absent);
  if (auto session = std::move(state_.slots[member].session)) session->Kill();
  state_.stats.Forget(member);
  state_.slots[member] = MemberSlot();
  state_.slots[member].lost = lost;
}

void CoordinatorActions::Expel(PausingTime now, int member, const Verdict& why) {
  if (auto session = std::move(state_.slots[member].session)) {
    proto::CoordinatorMessage message;
    *message.mutable_refusal() = VerdictToProto(why);
    session->Send(std::move(message));
    session->Close();
  }
  Drop(now, member, why.message, /*asked_to_exit=*/true);
  state_.job.members[member].left = why.code == ExitCode::kPreempted;
}

void CoordinatorActions::Abort(PausingTime now, const std::string& why) {
  state_.job.stage = JobStage::kJoining;
  state_.job.stage_since = now;
  next_roster_ = now + state_.options.roster_interval;
  state_.abort_reason = why;
  // A member outside the generation still waits, so its `waiting` stays set.
  for (MemberInfo& m : state_.job.members)
    if (m.in_generation) m.report.waiting = m.report.finished = false;
  proto::CoordinatorMessage message;
  message.mutable_abort()->set_generation(state_.job.generation);
  message.mutable_abort()->set_reason(why);
  state_.SendAll(message);
}

void CoordinatorActions::End(PausingTime now, Verdict verdict, int lost) {
  if (state_.job.stage == JobStage::kEnding) return;
  state_.job.stage = JobStage::kEnding;
  state_.job.stage_since = now;
  state_.job.verdict = std::move(verdict);
  state_.ended.SignalAll();
  TellVerdict();
  proto::CoordinatorMessage message;
  *message.mutable_verdict() = VerdictToProto(state_.job.verdict);
  state_.SendAll(message);
  // A frozen member may read its verdict when it wakes. The job does not wait for that.
  if (lost >= 0 &&
      now - state_.job.members[lost].process.last_heard >= state_.options.decision.suspect)
    state_.job.members[lost].process.connected = false;
}

void CoordinatorActions::TellVerdict() const {
  const Verdict& verdict = state_.job.verdict;
  const std::string why = Describe(verdict);
  state_.ReportEvent(
      proto::RunEvent::VERDICT, verdict.task, verdict.step,
      verdict.code == ExitCode::kDone
          ? "the job is complete"
          : fmt::format("the job ends with {}: {}", static_cast<int>(verdict.code), why));
}

void CoordinatorActions::SendMissingMembers(PausingTime now) {
  if (now < next_roster_ || !state_.policy->IsHeldUp(state_.job)) return;
  next_roster_ = now + state_.options.roster_interval;
  proto::CoordinatorMessage message;
  message.set_roster(RosterLine(now, state_.job));
  LogInfo("{}", message.roster());
  state_.SendAll(message);
}

}  // namespace muster::chief
