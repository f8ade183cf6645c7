#include "chief/coordinator.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "chief/convert.h"
#include "chief/coordinator_impl.h"
#include "common/base/logging.h"
#include "common/rpc/host.h"

namespace muster {
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

Session::Message Pulse(bool stop_requested) {
  auto message = std::make_shared<proto::CoordinatorMessage>();
  message->mutable_pulse()->set_stop_requested(stop_requested);
  return message;
}

}  // namespace

CoordinatorImpl::CoordinatorImpl(CoordinatorOptions options)
    : options_(std::move(options)),
      pulse_(Pulse(false)),
      stop_pulse_(Pulse(true)),
      slots_(options_.members.size()),
      epoch_(options_.epoch),
      admission_(options_.admission) {
  state_.started = state_.stage_since = state_.decided_at = Clock::now();
  next_roster_ = state_.started + options_.roster_interval;
  for (const DeclaredMember& declared : options_.members) {
    MemberState member;
    member.task = declared.task;
    member.address = declared.address;
    state_.members.push_back(std::move(member));
  }
}

absl::Status CoordinatorImpl::Listen() {
  std::vector<grpc::Service*> services = options_.services;
  services.push_back(this);
  MUSTER_ASSIGN_OR_RETURN(server_, rpc::Server::Start(options_.server, services));
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

CoordinatorImpl::~CoordinatorImpl() {
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
    WakeLocked();
    closed_wake_.SignalAll();
    for (Slot& slot : slots_)
      if (slot.session) slot.session->Close();
  }
  if (thread_.joinable()) thread_.join();
  if (server_) server_->Shutdown(std::chrono::milliseconds(200));
}

Verdict CoordinatorImpl::Wait() {
  absl::MutexLock lock(&mu_);
  while (!closed_ && !exiting_) closed_wake_.Wait(&mu_);
  return state_.verdict;
}

Verdict CoordinatorImpl::WaitForEnd() {
  absl::MutexLock lock(&mu_);
  while (state_.stage != Stage::kEnding && !exiting_) closed_wake_.Wait(&mu_);
  return state_.verdict;
}

void CoordinatorImpl::End(Verdict verdict) {
  absl::MutexLock lock(&mu_);
  EndLocked(Clock::now(), std::move(verdict), -1);
  WakeLocked();
}

void CoordinatorImpl::EndFinished(const std::string& message) {
  absl::MutexLock lock(&mu_);
  if (state_.stage != Stage::kEnding) {
    state_.tell_all = true;
    if (options_.own_member >= 0) state_.members[options_.own_member].acknowledged = true;
  }
  EndLocked(Clock::now(), {ExitCode::kDone, "", "", -1, Phase::kEnding, message}, -1);
  WakeLocked();
}

void CoordinatorImpl::GoOnWithLastStep() {
  absl::MutexLock lock(&mu_);
  state_.through = true;
}

void CoordinatorImpl::RequestStop() {
  absl::MutexLock lock(&mu_);
  StopLocked();
}

void CoordinatorImpl::StopLocked() {
  if (state_.stop_requested) return;
  state_.stop_requested = true;
  proto::CoordinatorMessage message;
  message.mutable_pulse()->set_stop_requested(true);
  SendAllLocked(message);
  if (options_.events != nullptr) options_.events->OnStopRequested();
  WakeLocked();
}

// ---- deciding ----

void CoordinatorImpl::Run() {
  const absl::Duration tick = absl::FromChrono(options_.tick);
  {
    // Waiting for the port is no lateness.
    absl::MutexLock lock(&mu_);
    state_.started = state_.stage_since = state_.decided_at = Clock::now();
    next_roster_ = state_.started + options_.roster_interval;
  }
  while (true) {
    ProbeBroken();
    absl::MutexLock lock(&mu_);
    if (exiting_ || closed_) return;
    event_ = false;
    const MonotonicTime now = Clock::now();
    const Duration gap = AllowForLateness(now, &state_, options_.decision);
    if (gap != Duration::zero())
      LogWarning("the coordinator itself was held up for {:.1f} s: all deadlines move by that",
                 Seconds(gap));
    Decision decision = Decide(now, state_, options_.decision);
    Act(now, decision);
    if (now >= next_roster_ && (state_.stage == Stage::kJoining || ServerMissingLocked()))
      RosterLocked(now);
    if (decision.action == Action::kWait && !event_ && !exiting_) wake_.WaitWithTimeout(&mu_, tick);
  }
}

// Asks the hosts of broken sessions whether the process is still there. Without mu_: it waits for
// the network, a little.
void CoordinatorImpl::ProbeBroken() {
  struct Broken {
    int member;
    uint64_t incarnation;
    std::string address;
  };
  std::vector<Broken> broken;
  {
    absl::MutexLock lock(&mu_);
    if (state_.stage == Stage::kEnding) return;
    for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
      const MemberState& m = state_.members[i];
      if (m.joined && !m.connected && !m.gone)
        broken.push_back({i, m.incarnation, slots_[i].hello.data_address()});
    }
  }
  const MonotonicTime stop = Clock::now() + std::chrono::milliseconds(200);
  for (const Broken& b : broken) {
    if (Clock::now() >= stop) return;
    if (rpc::ProbePort(b.address, std::chrono::milliseconds(50)) != rpc::PortState::kRefused)
      continue;
    absl::MutexLock lock(&mu_);
    MemberState& m = state_.members[b.member];
    if (m.joined && !m.connected && m.incarnation == b.incarnation) m.gone = true;
  }
}

void CoordinatorImpl::Act(MonotonicTime now, const Decision& decision) {
  if (decision.reason != last_reason_ && decision.action == Action::kWait)
    LogDebug("coordinator: {}", decision.reason);
  last_reason_ = decision.reason;
  switch (decision.action) {
    case Action::kWait:
      return;
    case Action::kForm:
      return options_.decision.independent ? AdmitLocked(now, decision.member) : FormLocked(now);
    case Action::kStart: {
      state_.stage = Stage::kRunning;
      state_.stage_since = now;
      state_.failed_formations = 0;
      proto::CoordinatorMessage message;
      message.set_start(state_.generation);
      return SendAllLocked(message);
    }
    case Action::kStop:
      LogInfo("{}", decision.reason);
      return StopLocked();
    case Action::kDrop:
      if (decision.expel) {
        if (decision.verdict.code == ExitCode::kPreempted) {
          LogInfo("{}", decision.reason);
        } else {
          LogWarning("{}", decision.reason);
        }
        return ExpelLocked(now, decision.member, decision.verdict);
      }
      LogWarning("{} {}", TaskText(state_.members[decision.member].task), decision.reason);
      return DropLocked(now, decision.member, decision.reason);
    case Action::kAbortGeneration:
      LogWarning("{}", decision.reason);
      // A member that was lost meanwhile says nothing about the links.
      if (state_.stage == Stage::kForming && decision.member < 0) ++state_.failed_formations;
      if (decision.expel) {
        ExpelLocked(now, decision.member, decision.verdict);
      } else if (decision.member >= 0) {
        DropLocked(now, decision.member, decision.reason);
      }
      return AbortLocked(now, decision.reason);
    case Action::kEndJob:
      return EndLocked(now, decision.verdict, decision.member);
    case Action::kClose:
      if (decision.reason != "all members have left") LogWarning("{}", decision.reason);
      closed_ = true;
      closed_wake_.SignalAll();
      return;
  }
}

void CoordinatorImpl::FormLocked(MonotonicTime now) {
  state_.generation = (static_cast<uint64_t>(epoch_) << 32) | ++counter_;
  state_.stage = Stage::kForming;
  state_.stage_since = now;
  auto message = std::make_shared<proto::CoordinatorMessage>();
  proto::Formation& formation = *message->mutable_formation();
  formation.set_generation(state_.generation);
  formation.set_ticket(RandomBytes(16));
  const int newest = NewestMember(state_);
  formation.set_newest_step(state_.members[newest].last_step);
  int replicas = 0;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    MemberState& m = state_.members[i];
    m.in_generation = Ready(m);
    if (!m.in_generation) continue;
    if (i == newest) formation.set_newest_rank(formation.members_size());
    m.waiting = m.finished = false;
    m.collective_sequence = m.collectives_done = 0;
    m.phase = Phase::kForming;  // until it reports: what it did before is over
    m.phase_since = now;
    const proto::Hello& hello = slots_[i].hello;
    proto::RosterEntry* entry = formation.add_members();
    entry->set_task(hello.task());
    entry->set_host_id(hello.host_id());
    entry->set_data_address(hello.data_address());
    entry->set_num_replicas(hello.num_replicas());
    *entry->mutable_cpus() = hello.cpus();
    replicas += hello.num_replicas();
  }
  const int members = formation.members_size();
  formation_ = std::move(message);
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i)
    if (state_.members[i].in_generation && slots_[i].session) slots_[i].session->Send(formation_);
  const int64_t step = state_.members[newest].last_step;
  LogInfo("{} member{}, {} replica{}: generation {} of run {}{}", members, members == 1 ? "" : "s",
          replicas, replicas == 1 ? "" : "s", counter_, admission_.run_id,
          step == 0 ? ""
                    : fmt::format(", with the state of {} after step {}",
                                  TaskText(state_.members[newest].task), step));
}

void CoordinatorImpl::AdmitLocked(MonotonicTime now, int member) {
  MemberState& m = state_.members[member];
  Slot& slot = slots_[member];
  if (state_.stage == Stage::kJoining) {
    state_.stage = Stage::kRunning;
    state_.stage_since = now;
    LogInfo("run {}: {}", admission_.run_id, RosterLine(now, state_));
  }
  const bool again = m.again || m.in_generation;
  m.generation = state_.generation = (static_cast<uint64_t>(epoch_) << 32) | ++counter_;
  m.in_generation = true;
  m.waiting = m.finished = false;
  m.phase = Phase::kForming;  // until it reports
  m.phase_since = now;
  if (m.task.starts_with("ps:")) state_.servers_since = now;
  const proto::Hello& hello = slot.hello;
  auto message = std::make_shared<proto::CoordinatorMessage>();
  proto::Formation& formation = *message->mutable_formation();
  formation.set_generation(m.generation);
  formation.set_ticket(RandomBytes(16));
  formation.set_newest_step(m.last_step);
  proto::RosterEntry* entry = formation.add_members();
  entry->set_task(hello.task());
  entry->set_host_id(hello.host_id());
  entry->set_data_address(hello.data_address());
  entry->set_num_replicas(hello.num_replicas());
  *entry->mutable_cpus() = hello.cpus();
  slot.formation = std::move(message);
  if (slot.session) {
    proto::CoordinatorMessage start;
    start.set_start(m.generation);
    slot.session->Send(slot.formation);
    slot.session->Send(std::move(start));
  }
  LogInfo("{} on host {} is in{}", TaskText(m.task), m.host, again ? " again" : "");
  slot.admitted = m.incarnation;
  if (options_.events != nullptr)
    options_.events->OnAdmitted(
        {m.task, m.incarnation, hello.data_address(), hello.host_id(), m.host, again});
}

void CoordinatorImpl::ReplaceLocked(int member) {
  MemberState& m = state_.members[member];
  const std::string why = "lost: a new process took its place";
  LogWarning("{} {}", TaskText(m.task), why);
  const uint64_t lost = std::exchange(slots_[member].admitted, 0);
  if (options_.events != nullptr) options_.events->OnLost(m.task, lost, why);
  m.in_generation = false;
}

void CoordinatorImpl::DropLocked(MonotonicTime now, int member, const std::string& why, bool told) {
  MemberState& m = state_.members[member];
  if (options_.on_lost && !m.leaving)
    options_.on_lost({m.task, slots_[member].hello.pid(), why, told});
  MemberState absent;
  absent.task = m.task;
  absent.address = m.address;
  absent.host = m.host;
  absent.step = m.step;
  absent.phase = m.phase;
  absent.in_generation = m.in_generation && !options_.decision.independent;
  absent.abandoned = m.abandoned;
  absent.why_missing = why;
  absent.missing_since = now;
  const uint64_t lost = m.incarnation, admitted = slots_[member].admitted;
  if (options_.events != nullptr && admitted != 0) options_.events->OnLost(m.task, admitted, why);
  m = std::move(absent);
  if (auto session = std::move(slots_[member].session)) session->Kill();
  slots_[member] = Slot();
  slots_[member].lost = lost;
}

void CoordinatorImpl::ExpelLocked(MonotonicTime now, int member, const Verdict& why) {
  if (auto session = std::move(slots_[member].session)) {
    proto::CoordinatorMessage message;
    *message.mutable_refusal() = VerdictToProto(why);
    session->Send(std::move(message));
    session->Close();
  }
  DropLocked(now, member, why.message, /*told=*/true);
  state_.members[member].left = why.code == ExitCode::kPreempted;
}

void CoordinatorImpl::AbortLocked(MonotonicTime now, const std::string& why) {
  state_.stage = Stage::kJoining;
  state_.stage_since = now;
  next_roster_ = now + options_.roster_interval;
  abort_reason_ = why;
  // A newcomer goes on waiting.
  for (MemberState& m : state_.members)
    if (m.in_generation) m.waiting = m.finished = false;
  proto::CoordinatorMessage message;
  message.mutable_abort()->set_generation(state_.generation);
  message.mutable_abort()->set_reason(why);
  SendAllLocked(message);
}

void CoordinatorImpl::EndLocked(MonotonicTime now, Verdict verdict, int lost) {
  if (state_.stage == Stage::kEnding) return;
  state_.stage = Stage::kEnding;
  state_.stage_since = now;
  state_.verdict = std::move(verdict);
  closed_wake_.SignalAll();
  proto::CoordinatorMessage message;
  *message.mutable_verdict() = VerdictToProto(state_.verdict);
  SendAllLocked(message);
  // A frozen member may read its verdict when it wakes; nobody waits for that.
  if (lost >= 0 && now - state_.members[lost].last_heard >= options_.decision.suspect)
    state_.members[lost].connected = false;
}

// One whom the others wait for while they go on.
bool CoordinatorImpl::ServerMissingLocked() const {
  return options_.decision.independent && state_.stage == Stage::kRunning &&
         std::any_of(state_.members.begin(), state_.members.end(), [](const MemberState& m) {
           return m.task.starts_with("ps:") && !m.in_generation && m.abandoned.empty();
         });
}

void CoordinatorImpl::RosterLocked(MonotonicTime now) {
  next_roster_ = now + options_.roster_interval;
  proto::CoordinatorMessage message;
  message.set_roster(RosterLine(now, state_));
  LogInfo("{}", message.roster());
  SendAllLocked(message);
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(CoordinatorOptions options) {
  auto coordinator = std::make_unique<CoordinatorImpl>(std::move(options));
  MUSTER_RETURN_IF_ERROR(coordinator->Listen());
  return coordinator;
}

}  // namespace muster
