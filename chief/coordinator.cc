#include "chief/coordinator.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <set>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "chief/convert.h"
#include "chief/session.h"
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

class CoordinatorImpl final : public Coordinator,
                              public Session::Handler,
                              public proto::Coordinator::CallbackService {
 public:
  explicit CoordinatorImpl(CoordinatorOptions options);
  ~CoordinatorImpl() override;
  absl::Status Listen();

  int port() const override { return server_->port(); }
  Verdict Wait() override;
  void End(Verdict verdict) override;
  void EndFinished(const std::string& message) override;
  void RequestStop() override;

  // Session::Handler
  void OnMessage(const std::shared_ptr<muster::Session>& session,
                 const proto::MemberMessage& message) override;
  void OnBroken(const std::shared_ptr<muster::Session>& session) override;

  // proto::Coordinator
  grpc::ServerBidiReactor<proto::MemberMessage, proto::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ReportFailure(grpc::CallbackServerContext* context,
                                          const proto::FailureReport* request,
                                          proto::FailureReply* reply) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const proto::StatusRequest* request,
                                   proto::StatusReply* reply) override;

 private:
  struct Slot {
    std::shared_ptr<muster::Session> session;  // null: none stands
    proto::Hello hello;                        // the last accepted one
  };

  void Run();
  void ProbeBroken();
  void Act(MonotonicTime now, const Decision& decision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FormLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropLocked(MonotonicTime now, int member, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops a member that hangs, and tells its process, so that it ends.
  void ExpelLocked(MonotonicTime now, int member, const Verdict& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AbortLocked(MonotonicTime now, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLocked(MonotonicTime now, Verdict verdict, int lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RosterLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void HelloLocked(const std::shared_ptr<muster::Session>& session, const proto::Hello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AdoptRunLocked(const proto::Hello& hello) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BindLocked(const std::shared_ptr<muster::Session>& session, const proto::Hello& hello,
                  int member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReportLocked(int member, const proto::Report& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What a session that (re)joined has to know of the state of affairs.
  void CatchUpLocked(int member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  proto::CoordinatorMessage WelcomeLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  proto::CoordinatorMessage FormationForLocked(int member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendAllLocked(const proto::CoordinatorMessage& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why a failure report is not taken, "" if it is.
  std::string TakeDeathLocked(const proto::FailureReport& report, MemberState* member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string TakeFailureLocked(const proto::FailureReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int MemberOfLocked(const muster::Session* session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StopLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    event_ = true;
    wake_.Signal();
  }

  const CoordinatorOptions options_;
  std::unique_ptr<rpc::Server> server_;
  std::thread thread_;

  absl::Mutex mu_;
  absl::CondVar wake_, closed_wake_;
  bool event_ ABSL_GUARDED_BY(mu_) = false;
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  JobState state_ ABSL_GUARDED_BY(mu_);
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mu_);  // by rank
  uint32_t epoch_ ABSL_GUARDED_BY(mu_);
  uint32_t counter_ ABSL_GUARDED_BY(mu_) = 0;
  proto::Formation formation_ ABSL_GUARDED_BY(mu_);  // of state_.generation, without the rank
  std::string last_reason_ ABSL_GUARDED_BY(mu_);
  std::string abort_reason_ ABSL_GUARDED_BY(mu_);  // of the last generation
  AdmissionOptions admission_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> superseded_ ABSL_GUARDED_BY(mu_);  // incarnations that were replaced
  MonotonicTime next_roster_ ABSL_GUARDED_BY(mu_);
};

CoordinatorImpl::CoordinatorImpl(CoordinatorOptions options)
    : options_(std::move(options)),
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

void CoordinatorImpl::End(Verdict verdict) {
  absl::MutexLock lock(&mu_);
  EndLocked(Clock::now(), std::move(verdict), -1);
  WakeLocked();
}

void CoordinatorImpl::EndFinished(const std::string& message) {
  absl::MutexLock lock(&mu_);
  if (state_.stage != Stage::kEnding) {
    state_.tell_all = true;
    state_.members[0].acknowledged = true;  // this process
  }
  EndLocked(Clock::now(), {ExitCode::kDone, "", "", -1, Phase::kEnding, message}, -1);
  WakeLocked();
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
    if (state_.stage == Stage::kJoining && now >= next_roster_) RosterLocked(now);
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
      return FormLocked(now);
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
        LogInfo("{}", decision.reason);
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
  formation_.Clear();
  formation_.set_generation(state_.generation);
  formation_.set_ticket(RandomBytes(16));
  const int newest = NewestMember(state_);
  formation_.set_newest_step(state_.members[newest].last_step);
  int replicas = 0;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    MemberState& m = state_.members[i];
    m.in_generation = Ready(m);
    if (!m.in_generation) continue;
    if (i == newest) formation_.set_newest_rank(formation_.members_size());
    m.waiting = m.finished = false;
    m.phase = Phase::kForming;  // until it reports: what it did before is over
    m.phase_since = now;
    const proto::Hello& hello = slots_[i].hello;
    proto::RosterEntry* entry = formation_.add_members();
    entry->set_task(hello.task());
    entry->set_host_id(hello.host_id());
    entry->set_data_address(hello.data_address());
    entry->set_num_replicas(hello.num_replicas());
    *entry->mutable_cpus() = hello.cpus();
    replicas += hello.num_replicas();
  }
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    if (state_.members[i].in_generation && slots_[i].session)
      slots_[i].session->Send(FormationForLocked(i));
  }
  const int members = formation_.members_size();
  LogInfo("{} member{}, {} replica{}: generation {} of run {}", members, members == 1 ? "" : "s",
          replicas, replicas == 1 ? "" : "s", counter_, admission_.run_id);
}

void CoordinatorImpl::DropLocked(MonotonicTime now, int member, const std::string& why) {
  MemberState& m = state_.members[member];
  MemberState absent;
  absent.task = m.task;
  absent.address = m.address;
  absent.host = m.host;
  absent.step = m.step;
  absent.in_generation = m.in_generation;
  absent.why_missing = why;
  absent.missing_since = now;
  m = std::move(absent);
  if (auto session = std::move(slots_[member].session)) session->Kill();
  slots_[member] = Slot();
}

void CoordinatorImpl::ExpelLocked(MonotonicTime now, int member, const Verdict& why) {
  if (auto session = std::move(slots_[member].session)) {
    proto::CoordinatorMessage message;
    *message.mutable_refusal() = VerdictToProto(why);
    session->Send(std::move(message));
    session->Close();
  }
  DropLocked(now, member, why.message);
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
  proto::CoordinatorMessage message;
  *message.mutable_verdict() = VerdictToProto(state_.verdict);
  SendAllLocked(message);
  // A frozen member may read its verdict when it wakes; nobody waits for that.
  if (lost >= 0 && now - state_.members[lost].last_heard >= options_.decision.suspect)
    state_.members[lost].connected = false;
}

void CoordinatorImpl::RosterLocked(MonotonicTime now) {
  next_roster_ = now + options_.roster_interval;
  proto::CoordinatorMessage message;
  message.set_roster(RosterLine(now, state_));
  LogInfo("{}", message.roster());
  SendAllLocked(message);
}

// ---- sessions ----

int CoordinatorImpl::MemberOfLocked(const muster::Session* session) const {
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    if (slots_[i].session.get() == session) return i;
  }
  return -1;
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
  AdoptRunLocked(hello);
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
// its members hold.
void CoordinatorImpl::AdoptRunLocked(const proto::Hello& hello) {
  if (!admission_.fresh_run || state_.generation != 0 || hello.run_id().empty()) return;
  if (hello.cluster_digest() != admission_.cluster_digest) return;
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
  return message;
}

void CoordinatorImpl::BindLocked(const std::shared_ptr<muster::Session>& session,
                                 const proto::Hello& hello, int member) {
  MemberState& m = state_.members[member];
  Slot& slot = slots_[member];
  const MonotonicTime now = Clock::now();
  if (!m.joined || m.incarnation != hello.incarnation()) {
    // The others must not wait for the process that was replaced.
    if (m.joined && m.in_generation && state_.stage != Stage::kJoining) {
      const std::string why =
          fmt::format("{} was lost: a new process took its place", TaskText(m.task));
      LogWarning("{}", why);
      AbortLocked(now, why);
    }
    if (m.joined) superseded_.insert(m.incarnation);
    MemberState fresh;
    fresh.task = m.task;
    fresh.address = m.address;
    fresh.in_generation = m.in_generation;
    fresh.failure = m.failure;
    fresh.phase_since = now;
    m = std::move(fresh);
    for (const auto& [name, version] : options_.versions) {
      const auto theirs = hello.versions().find(name);
      if (theirs != hello.versions().end() && theirs->second != version)
        LogWarning("{} runs {} {}, the chief {}", TaskText(m.task), name, theirs->second, version);
    }
  }
  m.joined = m.connected = true;
  m.gone = false;
  m.last_heard = now;
  m.incarnation = hello.incarnation();
  m.host = hello.host();
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
  slot.hello = hello;
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
  const bool current = state_.members[member].in_generation && state_.stage != Stage::kJoining;
  const uint64_t generation = slots_[member].hello.generation();
  if (state_.stage != Stage::kEnding && generation != 0 &&
      !(current && generation == state_.generation)) {
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
      if (current) session.Send(FormationForLocked(member));
      return;
    case Stage::kRunning:
      if (!current) return;
      session.Send(FormationForLocked(member));
      message.set_start(state_.generation);
      return session.Send(message);
    case Stage::kEnding:
      *message.mutable_verdict() = VerdictToProto(state_.verdict);
      return session.Send(message);
  }
}

void CoordinatorImpl::ReportLocked(int member, const proto::Report& report) {
  MemberState& m = state_.members[member];
  ApplyReport(report, Clock::now(), &m);
  if (report.stop_requested()) StopLocked();
  if (report.leave_requested() && !m.leaving) {
    m.leaving = true;
    WakeLocked();
  }
  proto::CoordinatorMessage message;
  message.mutable_pulse()->set_stop_requested(state_.stop_requested);
  slots_[member].session->SendIfIdle(std::move(message));
  // What decisions wait for; a plain heartbeat is looked at with the next tick.
  if (m.waiting || m.finished || m.acknowledged || m.formation_error || m.collective_error ||
      state_.stage == Stage::kForming)
    WakeLocked();
}

proto::CoordinatorMessage CoordinatorImpl::FormationForLocked(int member) {
  proto::CoordinatorMessage message;
  *message.mutable_formation() = formation_;
  const std::string& task = state_.members[member].task;
  for (int rank = 0; rank < formation_.members_size(); ++rank)
    if (formation_.members(rank).task() == task) message.mutable_formation()->set_rank(rank);
  return message;
}

void CoordinatorImpl::SendAllLocked(const proto::CoordinatorMessage& message) {
  for (Slot& slot : slots_)
    if (slot.session) slot.session->Send(message);
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
  if (!m->failure)
    m->failure = ReportedFailure{ExitCode::kRetryable, report.message(), "", m->step, m->phase,
                                 Clock::now()};
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
  if (code == ExitCode::kRetryable && !m.joined) {
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

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(CoordinatorOptions options) {
  auto coordinator = std::make_unique<CoordinatorImpl>(std::move(options));
  MUSTER_RETURN_IF_ERROR(coordinator->Listen());
  return coordinator;
}

}  // namespace muster
