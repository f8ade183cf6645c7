#include "worker/member.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/logging.h"
#include "common/cluster/protocol.h"
#include "worker/aborter.h"
#include "worker/chief_silence.h"
#include "worker/flight_courier.h"
#include "worker/held_communicator.h"
#include "worker/session_client.h"

namespace muster {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr Duration kLastWords = std::chrono::seconds(3);  // for the record of one that hangs
constexpr Duration kLate = std::chrono::seconds(1);  // between two ticks: this process was stopped

uint64_t RandomNumber() {
  uint64_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number || number == 0) {
  }
  return number;
}

Verdict VerdictFromProto(const proto::Verdict& v) {
  const Phase phase = v.phase() < kNumPhases ? static_cast<Phase>(v.phase()) : Phase::kStarting;
  return {ExitCodeFromInt(v.exit_code()), v.task(), v.host(), v.step(), phase, v.message()};
}

class MemberImpl final : public Member {
 public:
  explicit MemberImpl(MemberOptions options);
  ~MemberImpl() override;
  void StartThread() {
    thread_ = std::thread([this] { Run(); });
  }

  absl::StatusOr<Welcome> Join() override;
  std::optional<Verdict> verdict() const override;
  std::string FinalLine(const absl::Status& result) const override;
  absl::Status WaitOver() override;
  uint64_t incarnation() const override { return incarnation_; }

  absl::StatusOr<Generation> NextGeneration(int64_t last_step) override;
  void SetPhase(Phase phase, int64_t step) override;
  absl::Status Explain(const absl::Status& local) override;
  void ReportFailure(const absl::Status& failure) override;
  void RequestStop() override;
  bool StopRequested() const override { return stop_.load(std::memory_order_relaxed); }
  absl::Status Finish(int64_t last_step, const absl::Status& outcome) override;
  bool JobEnded() const override {
    absl::MutexLock lock(&mu_);
    return !options_.recover || verdict_.has_value();
  }

 private:
  using Replicas = std::vector<std::unique_ptr<Communicator>>;

  // The thread's parts.
  void Run();
  void AllowForLatenessLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WatchChiefLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A planned fault keeps the chief and this process apart just now.
  bool SilentLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ConnectLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What has to be aborted now, and why.
  std::vector<std::shared_ptr<Communicator>> TakeDoomedLocked(absl::Status* why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void OnMessage(uint64_t session, const proto::CoordinatorMessage& message);
  void OnClosed(uint64_t session, const grpc::Status& status);
  void WelcomeLocked(const proto::Welcome& welcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FormationLocked(const proto::Formation& formation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  proto::Hello HelloLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  proto::Report ReportLocked(MonotonicTime now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLocked(Verdict verdict) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends the flight record, once for each generation that was aborted and once for a job that
  // failed. `more`: for another reason.
  void KeepRecordLocked(const std::string& more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LoseChiefLocked(MonotonicTime now, const std::string& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Once, where the loop should have come back from a generation that is over: why that is. Else
  // "".
  std::string StuckLocked(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void StartJoiningLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetPhaseLocked(Phase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool OverLocked(uint64_t generation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return verdict_.has_value() || aborted_ >= generation;
  }
  absl::Status VerdictStatusLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return StatusOf(*verdict_, options_.task, options_.is_chief);
  }
  // Instead of a generation, once there is a verdict.
  absl::StatusOr<Generation> NoGenerationLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (verdict_->code != ExitCode::kDone) return VerdictStatusLocked();
    if (!verdict_->message.empty()) LogInfo("{}", verdict_->message);
    Generation none;
    none.job_done = true;
    return none;
  }
  void ChangedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    changed_ = true;
    wake_.SignalAll();
  }

  // Forms the generation: OK with its communicators, or why it did not come up.
  absl::StatusOr<Replicas> Form(const proto::Formation& formation, Generation* generation);
  // Registers communicators for abort and hands out their loop's halves.
  Replicas HoldLocked(uint64_t generation, Replicas made) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const MemberOptions options_;
  const uint64_t incarnation_ = RandomNumber();
  std::unique_ptr<proto::Coordinator::Stub> stub_;
  Aborter aborter_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;   // at an agreed step, with all others
  std::atomic<bool> leave_ = false;  // alone

  mutable absl::Mutex mu_;
  absl::CondVar wake_;  // anything below changed
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;

  // The session.
  std::shared_ptr<SessionClient> session_ ABSL_GUARDED_BY(mu_);  // null: none stands
  uint64_t session_number_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::shared_ptr<SessionClient>> closed_sessions_ ABSL_GUARDED_BY(mu_);
  bool session_up_ ABSL_GUARDED_BY(mu_) = false;  // it was welcomed
  bool silent_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<MonotonicTime> joining_since_ ABSL_GUARDED_BY(mu_);
  std::optional<MonotonicTime> broken_since_ ABSL_GUARDED_BY(mu_);
  std::optional<MonotonicTime> stop_since_ ABSL_GUARDED_BY(mu_);
  MonotonicTime last_heard_ ABSL_GUARDED_BY(mu_), last_sent_ ABSL_GUARDED_BY(mu_);
  MonotonicTime next_attempt_ ABSL_GUARDED_BY(mu_), last_tick_ ABSL_GUARDED_BY(mu_);
  MonotonicTime next_line_ ABSL_GUARDED_BY(mu_);
  rpc::Backoff backoff_ ABSL_GUARDED_BY(mu_);
  std::string trouble_ ABSL_GUARDED_BY(mu_) = "no answer yet";  // why the chief is not reached
  ChiefSilence chief_silence_ ABSL_GUARDED_BY(mu_);
  int64_t chief_pid_ ABSL_GUARDED_BY(mu_) = 0;

  // What the coordinator said.
  std::optional<Welcome> welcome_ ABSL_GUARDED_BY(mu_);
  proto::Formation formation_ ABSL_GUARDED_BY(mu_);  // the newest
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;     // this process is in; 0: none
  uint64_t highest_generation_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t started_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t aborted_ ABSL_GUARDED_BY(mu_) = 0;  // the highest aborted one
  std::string abort_reason_ ABSL_GUARDED_BY(mu_);
  std::optional<Verdict> verdict_ ABSL_GUARDED_BY(mu_);
  bool verdict_told_ ABSL_GUARDED_BY(mu_) = false;
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;  // the verdict is this process's alone

  // What this process says of itself.
  bool changed_ ABSL_GUARDED_BY(mu_) = false;  // not sent yet
  Phase phase_ ABSL_GUARDED_BY(mu_) = Phase::kStarting;
  MonotonicTime phase_since_ ABSL_GUARDED_BY(mu_);
  int64_t step_ ABSL_GUARDED_BY(mu_) = 0, last_step_ ABSL_GUARDED_BY(mu_) = 0;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false, finished_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t formed_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status outcome_ ABSL_GUARDED_BY(mu_);
  std::optional<proto::GenerationError> formation_error_ ABSL_GUARDED_BY(mu_);
  std::optional<proto::GenerationError> collective_error_ ABSL_GUARDED_BY(mu_);

  std::vector<std::weak_ptr<Communicator>> communicators_ ABSL_GUARDED_BY(mu_);
  uint64_t communicators_generation_ ABSL_GUARDED_BY(mu_) = 0;
  bool in_loop_ ABSL_GUARDED_BY(mu_) = false;  // the loop has a generation and trains
  std::optional<MonotonicTime> over_since_ ABSL_GUARDED_BY(mu_);
  bool stuck_told_ ABSL_GUARDED_BY(mu_) = false;

  const std::shared_ptr<FlightRecorder> recorder_ = std::make_shared<FlightRecorder>();
  uint64_t recorded_generation_ ABSL_GUARDED_BY(mu_) = 0;  // whose end is recorded
  bool recorded_verdict_ ABSL_GUARDED_BY(mu_) = false;
  // Null without a channel. Its thread takes mu_.
  std::unique_ptr<FlightCourier> courier_ ABSL_GUARDED_BY(mu_);
};

MemberImpl::MemberImpl(MemberOptions options)
    : options_(std::move(options)),
      backoff_(options_.channel.retry, incarnation_),
      chief_silence_(options_.timeouts.heartbeat) {
  last_tick_ = phase_since_ = next_attempt_ = Clock::now();
  auto channel = rpc::MakeChannel(options_.chief_address, options_.channel);
  absl::MutexLock lock(&mu_);
  if (channel.ok()) {
    stub_ = proto::Coordinator::NewStub(*channel);
    FlightCourierOptions courier;
    courier.channel = *channel;
    courier.cluster_digest = options_.cluster_digest;
    courier.fallback_folder = options_.flight_folder;
    courier.on_idle = [this] {
      absl::MutexLock told(&mu_);
      ChangedLocked();
    };
    courier_ = std::make_unique<FlightCourier>(std::move(courier));
  } else {
    EndLocked({ExitCodeOf(channel.status()), options_.task, options_.host.name, -1,
               Phase::kStarting, std::string(Message(channel.status()))});
  }
}

MemberImpl::~MemberImpl() {
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
    wake_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  std::unique_ptr<FlightCourier> courier;
  {
    absl::MutexLock lock(&mu_);
    courier = std::move(courier_);
  }
  courier.reset();  // while the chief still counts on this member
  std::vector<std::shared_ptr<SessionClient>> closed;  // dropped without mu_, on this thread
  absl::MutexLock lock(&mu_);
  if (session_) session_->Leave();
  const absl::Time patience = absl::Now() + absl::Seconds(1);
  while (session_)
    if (wake_.WaitWithDeadline(&mu_, patience)) break;
  if (session_) session_->Cancel();
  while (session_) wake_.Wait(&mu_);  // gRPC ends a cancelled call by itself
  closed.swap(closed_sessions_);
}

// ---- the thread ----

void MemberImpl::Run() {
  while (true) {
    std::vector<std::shared_ptr<Communicator>> doomed;
    std::vector<std::shared_ptr<SessionClient>> closed;
    absl::Status why;
    std::optional<Verdict> tell;
    std::string stuck;
    bool given_up = false;
    FlightCourier* courier = nullptr;  // lives longer than this thread
    std::optional<Duration> silence;
    int64_t chief_pid = 0;
    {
      absl::MutexLock lock(&mu_);
      courier = courier_.get();
      if (!changed_ && !exiting_) wake_.WaitWithTimeout(&mu_, absl::FromChrono(kTick));
      const MonotonicTime now = Clock::now();
      AllowForLatenessLocked(now);
      const bool silent = SilentLocked();
      if (!verdict_) WatchChiefLocked(now);
      if (!verdict_ && !exiting_ && !silent) ConnectLocked(now);
      stuck = StuckLocked(now);
      KeepRecordLocked(stuck);
      if (!silent) SendLocked(now);
      closed.swap(closed_sessions_);
      doomed = TakeDoomedLocked(&why);
      if (!verdict_) silence = chief_silence_.News(now);
      chief_pid = chief_pid_;
      if (verdict_ && !verdict_told_) {
        verdict_told_ = true;
        tell = verdict_;
        given_up = given_up_;
      }
      if (exiting_ && doomed.empty()) return;
    }
    if (!doomed.empty()) aborter_.Abort(std::move(doomed), why);
    if (silence && options_.on_chief_silent) options_.on_chief_silent(chief_pid, *silence);
    if (!stuck.empty() && options_.on_stuck) {
      if (courier != nullptr) courier->WaitIdle(kLastWords);
      options_.on_stuck(stuck);
    }
    if (tell && given_up && options_.on_given_up) options_.on_given_up(*tell);
    if (tell && options_.on_verdict) options_.on_verdict(*tell);
  }
}

void MemberImpl::AllowForLatenessLocked(MonotonicTime now) {
  const Duration gap = now - last_tick_;
  last_tick_ = now;
  if (gap < kLate) return;
  auto move = [now, gap](MonotonicTime* t) { *t = std::min(now, *t + gap); };
  move(&last_heard_);
  move(&phase_since_);
  if (broken_since_) move(&*broken_since_);
  if (joining_since_) move(&*joining_since_);
  if (over_since_) move(&*over_since_);
  if (stop_since_) move(&*stop_since_);
  chief_silence_.Allow(now, gap);
}

// The chief's end is every member's own business: it must not wait for a verdict then.
void MemberImpl::WatchChiefLocked(MonotonicTime now) {
  const bool silent = session_ && now - last_heard_ >= options_.timeouts.heartbeat;
  if (generation_ != 0 || finished_) {
    if (silent)
      return LoseChiefLocked(now,
                             fmt::format("no answer for {:.1f} s", Seconds(now - last_heard_)));
    if (broken_since_ && now - *broken_since_ >= options_.timeouts.resume)
      LoseChiefLocked(now, fmt::format("{}, tried again for {:.1f} s", trouble_,
                                       Seconds(now - *broken_since_)));
    return;
  }
  if (silent) {
    // Nothing is lost yet: look for the chief again.
    trouble_ = "no answer";
    session_->Cancel();
  }
  if (session_up_ || !joining_since_) return;
  // Only once the chief was tried: if it is there, it has to know, for the others' sake.
  const bool again = highest_generation_ != 0;
  if ((stop_ || leave_) && broken_since_) {
    if (!stop_since_) stop_since_ = now;
    // The chief may be stopped with all others, and not come again; but its successor would take
    // over the state that this process holds.
    if (!again || now - std::max(*stop_since_, *joining_since_) >= options_.timeouts.report)
      return EndLocked({ExitCode::kPreempted, "", "", -1, phase_,
                        again ? "stopped as asked; the chief did not come back to save the state"
                              : "stopped before the chief was reached, as asked"});
  }
  const Duration patience = again ? options_.timeouts.rejoin : options_.timeouts.join;
  if (now - *joining_since_ >= patience)
    return EndLocked(
        {ExitCode::kRetryable, options_.task, options_.host.name, -1, phase_,
         fmt::format("could not reach the chief {} ({}) {}for {:g} s (timeouts.{}): {}",
                     options_.chief_task, options_.chief_address, again ? "again " : "",
                     Seconds(patience), again ? "rejoin" : "join", trouble_)});
  if (now >= next_line_) {
    next_line_ = now + std::chrono::seconds(10);
    LogInfo("waiting for the chief {} ({}): {}", options_.chief_task, options_.chief_address,
            trouble_);
  }
}

bool MemberImpl::SilentLocked() {
  if (!options_.session_fault) return false;
  const SessionFault fault = options_.session_fault();
  silent_ = fault == SessionFault::kSilent;
  if (fault == SessionFault::kBroken && session_) session_->Cancel();
  return silent_;
}

void MemberImpl::ConnectLocked(MonotonicTime now) {
  if (session_ || !joining_since_ || now < next_attempt_) return;
  const uint64_t number = ++session_number_;
  session_up_ = false;
  last_heard_ = now;
  session_ = SessionClient::Open(
      stub_.get(), HelloLocked(),
      {[this, number](const proto::CoordinatorMessage& m) { OnMessage(number, m); },
       [this, number](const grpc::Status& status) { OnClosed(number, status); }});
}

void MemberImpl::SendLocked(MonotonicTime now) {
  if (!session_ || !session_up_) {
    changed_ = false;  // the first report after the next welcome says it
    return;
  }
  if (!changed_ && now - last_sent_ < options_.timeouts.heartbeat_interval) return;
  changed_ = false;
  last_sent_ = now;
  session_->Send(ReportLocked(now));
}

std::vector<std::shared_ptr<Communicator>> MemberImpl::TakeDoomedLocked(absl::Status* why) {
  std::vector<std::shared_ptr<Communicator>> doomed;
  const bool failed = verdict_ && verdict_->code != ExitCode::kDone;
  if (!failed && aborted_ < communicators_generation_) return doomed;
  if (failed) {
    *why = VerdictStatusLocked();
  } else {
    *why = Superseded(abort_reason_);
  }
  for (const auto& weak : communicators_)
    if (auto communicator = weak.lock()) doomed.push_back(std::move(communicator));
  communicators_.clear();
  return doomed;
}

proto::Hello MemberImpl::HelloLocked() const {
  proto::Hello hello;
  hello.set_protocol(kControlProtocol);
  hello.set_task(options_.task);
  hello.set_incarnation(incarnation_);
  // Before the first generation there is no state that could belong to a run.
  if (welcome_ && highest_generation_ != 0) hello.set_run_id(welcome_->run_id);
  hello.set_cluster_digest(options_.cluster_digest);
  hello.set_cluster(options_.cluster);
  hello.set_job(options_.job);
  for (const auto& [name, version] : options_.versions) (*hello.mutable_versions())[name] = version;
  hello.set_num_replicas(options_.num_replicas);
  hello.set_devices(options_.devices);
  hello.set_host(options_.host.name);
  hello.set_pid(options_.host.pid);
  hello.set_host_id(options_.host.id);
  for (int cpu : options_.host.cpus) hello.add_cpus(cpu);
  hello.set_data_address(options_.data_address);
  hello.set_highest_generation(highest_generation_);
  hello.set_generation(generation_);
  hello.set_generation_size(formation_.members_size());
  return hello;
}

proto::Report MemberImpl::ReportLocked(MonotonicTime now) const {
  proto::Report report;
  report.set_phase(static_cast<uint32_t>(phase_));
  report.set_phase_age_ms(
      std::chrono::duration_cast<std::chrono::milliseconds>(now - phase_since_).count());
  report.set_step(step_);
  const FlightRecorder::Standing standing = recorder_->Stand();
  report.set_collectives_done(standing.completed);
  if (standing.in_flight) {
    report.set_collective(standing.call.Text());
    report.set_collective_sequence(standing.call.sequence);
    report.set_collective_age_ms(
        std::chrono::duration_cast<std::chrono::milliseconds>(now - standing.since).count());
  }
  report.set_waiting(waiting_);
  report.set_last_step(last_step_);
  report.set_formed_generation(formed_);
  if (formation_error_) *report.mutable_formation_error() = *formation_error_;
  if (collective_error_) *report.mutable_collective_error() = *collective_error_;
  report.set_finished(finished_);
  report.set_outcome(static_cast<int>(ExitCodeOf(outcome_)));
  report.set_outcome_message(std::string(Message(outcome_)));
  report.set_stop_requested(StopRequested());
  report.set_leave_requested(leave_);
  // Who has acknowledged is not waited for any more, and neither is its record.
  report.set_acknowledged(verdict_.has_value() && !(courier_ && courier_->busy()));
  return report;
}

void MemberImpl::EndLocked(Verdict verdict) {
  if (verdict_) return;
  verdict_ = std::move(verdict);
  recorder_->Note(FlightKind::kVerdict, verdict_->code == ExitCode::kDone ? "" : Story(*verdict_));
  ChangedLocked();
}

void MemberImpl::KeepRecordLocked(const std::string& more) {
  const uint64_t generation = highest_generation_;
  if (generation == 0 || !courier_) return;
  const bool failed = verdict_ && verdict_->code != ExitCode::kDone &&
                      verdict_->code != ExitCode::kPreempted && !recorded_verdict_;
  const bool aborted = !verdict_ && aborted_ >= generation && recorded_generation_ < generation;
  if (!failed && !aborted && more.empty()) return;
  recorded_verdict_ = recorded_verdict_ || failed;
  recorded_generation_ = generation;
  FlightHeader header;
  header.task = options_.task;
  header.host = options_.host.name;
  header.pid = options_.host.pid;
  header.run_id = welcome_ ? welcome_->run_id : "";
  header.generation = generation;
  for (const proto::RosterEntry& entry : formation_.members())
    header.members.push_back(entry.task());
  header.reason = !more.empty() ? more : failed ? Story(*verdict_) : abort_reason_;
  courier_->Keep(std::move(header), *recorder_, failed || !more.empty());
}

void MemberImpl::LoseChiefLocked(MonotonicTime now, const std::string& why) {
  std::string story =
      fmt::format("lost the chief {} ({}): {}", options_.chief_task, options_.chief_address, why);
  if (!options_.recover)
    return EndLocked(
        {ExitCode::kRetryable, options_.chief_task, "", -1, Phase::kStarting, std::move(story)});
  // Its successor will find this process, with the state that it holds.
  LogWarning("{}; waiting up to {:g} s for it to come back (timeouts.rejoin)", story,
             Seconds(options_.timeouts.rejoin));
  recorder_->Note(FlightKind::kChiefLost, why);
  aborted_ = highest_generation_;
  abort_reason_ = std::move(story);
  generation_ = 0;
  joining_since_ = now;
  next_line_ = now + std::chrono::seconds(10);
  if (session_) session_->Cancel();
  ChangedLocked();
}

std::string MemberImpl::StuckLocked(MonotonicTime now) {
  // A save that was begun is finished: timeouts.phase.save bounds it.
  if (!in_loop_ || phase_ == Phase::kSave || !OverLocked(communicators_generation_)) {
    over_since_.reset();
    return "";
  }
  if (!over_since_) over_since_ = now;
  if (stuck_told_ || now - *over_since_ < options_.timeouts.abort) return "";
  stuck_told_ = true;
  return fmt::format(
      "the training loop did not come back within {:g} s of the end of its "
      "generation (timeouts.abort): {}",
      Seconds(options_.timeouts.abort), abort_reason_);
}

// ---- the session's callbacks ----

void MemberImpl::OnMessage(uint64_t session, const proto::CoordinatorMessage& message) {
  absl::MutexLock lock(&mu_);
  if (session != session_number_ || silent_) return;
  last_heard_ = Clock::now();
  chief_silence_.Heard(last_heard_);
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kWelcome:
      return WelcomeLocked(message.welcome());
    case proto::CoordinatorMessage::kRefusal:
      given_up_ = highest_generation_ != 0;
      return EndLocked(VerdictFromProto(message.refusal()));
    case proto::CoordinatorMessage::kVerdict:
      return EndLocked(VerdictFromProto(message.verdict()));
    case proto::CoordinatorMessage::kPulse:
      if (message.pulse().stop_requested() && !stop_.exchange(true))
        recorder_->Note(FlightKind::kStopRequested, "all stop at an agreed step");
      return;
    case proto::CoordinatorMessage::kRoster:
      if (!options_.is_chief) LogInfo("{}", message.roster());
      return;
    case proto::CoordinatorMessage::kFormation:
      return FormationLocked(message.formation());
    case proto::CoordinatorMessage::kStart:
      if (message.start() == generation_ && started_ != generation_) {
        started_ = generation_;
        recorder_->Note(FlightKind::kStarted);
      }
      return wake_.SignalAll();
    case proto::CoordinatorMessage::kAbort:
      if (message.abort().generation() <= aborted_) return;
      aborted_ = message.abort().generation();
      abort_reason_ = message.abort().reason();
      recorder_->Note(FlightKind::kAborted, abort_reason_);
      if (generation_ <= aborted_) generation_ = 0;
      return ChangedLocked();
    case proto::CoordinatorMessage::KIND_NOT_SET:
      return;
  }
}

void MemberImpl::WelcomeLocked(const proto::Welcome& welcome) {
  session_up_ = true;
  recorder_->Note(FlightKind::kChiefFound);
  if (courier_) courier_->Retry();
  broken_since_.reset();
  backoff_.Reset();
  welcome_ = Welcome{welcome.run_id(), welcome.epoch(), welcome.job()};
  chief_pid_ = welcome.pid();
  ChangedLocked();
}

void MemberImpl::FormationLocked(const proto::Formation& formation) {
  if (formation.generation() == generation_) return;  // told again after a resumed session
  if (formation.generation() <= highest_generation_) {
    LogWarning("ignored generation {} from the chief: {} was there before", formation.generation(),
               highest_generation_);
    return;
  }
  formation_ = formation;
  generation_ = highest_generation_ = formation.generation();
  waiting_ = false;
  std::string members;
  for (const proto::RosterEntry& entry : formation.members())
    members += (members.empty() ? "" : ", ") + entry.task();
  recorder_->EnterGeneration(generation_, members);
  SetPhaseLocked(Phase::kForming);
  ChangedLocked();
}

void MemberImpl::OnClosed(uint64_t session, const grpc::Status& status) {
  absl::MutexLock lock(&mu_);
  closed_sessions_.push_back(std::move(session_));  // for a thread of ours to drop
  wake_.SignalAll();
  if (session != session_number_) return;
  const MonotonicTime now = Clock::now();
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED ||
      status.error_code() == grpc::StatusCode::INVALID_ARGUMENT)
    return EndLocked(
        {ExitCode::kConfiguration, options_.task, options_.host.name, -1, phase_,
         fmt::format("{} is no Muster chief: {}", options_.chief_address, status.error_message())});
  trouble_ = rpc::WhyUnreachable(status);
  // The first try after a break comes at once.
  next_attempt_ = session_up_ ? now : now + backoff_.Next();
  if (session_up_ && generation_ == 0 && joining_since_) joining_since_ = now;
  session_up_ = false;
  if (!broken_since_) broken_since_ = now;
}

// ---- the loop's calls ----

void MemberImpl::StartJoiningLocked() {
  if (joining_since_) return;
  joining_since_ = Clock::now();
  next_line_ = *joining_since_ + std::chrono::seconds(10);
  ChangedLocked();
}

absl::StatusOr<Member::Welcome> MemberImpl::Join() {
  absl::MutexLock lock(&mu_);
  StartJoiningLocked();
  while (!verdict_ && !welcome_) wake_.Wait(&mu_);
  if (verdict_ && verdict_->code != ExitCode::kDone) return VerdictStatusLocked();
  return welcome_.value_or(Welcome());
}

absl::StatusOr<Generation> MemberImpl::NextGeneration(int64_t last_step) {
  while (true) {
    proto::Formation formation;
    {
      absl::MutexLock lock(&mu_);
      StartJoiningLocked();
      in_loop_ = false;
      last_step_ = last_step;
      // The thread bounds this wait: by the chief's silence, and by timeouts.join. A generation may
      // come and be aborted between two looks: then this process waits for the next one, and says
      // so again.
      while (!verdict_ && (generation_ == 0 || generation_ == formed_)) {
        if (!waiting_) {
          SetPhaseLocked(Phase::kStarting);
          waiting_ = true;
          ChangedLocked();
        }
        wake_.Wait(&mu_);
      }
      if (verdict_) return NoGenerationLocked();
      formation = formation_;
    }
    const uint64_t id = formation.generation();
    Generation generation;
    absl::StatusOr<Replicas> made = Form(formation, &generation);
    absl::MutexLock lock(&mu_);
    if (made.ok()) {
      recorder_->Note(FlightKind::kFormed, made->empty() ? "" : made->front()->Describe());
      generation.replicas = HoldLocked(id, *std::move(made));
      formed_ = id;
    } else if (!OverLocked(id)) {
      recorder_->Note(FlightKind::kNotFormed, Message(made.status()));
      formation_error_.emplace();
      formation_error_->set_generation(id);
      formation_error_->set_message(std::string(Message(made.status())));
      formation_error_->set_exit_code(static_cast<int>(ExitCodeOf(made.status())));
    }
    ChangedLocked();
    while (!OverLocked(id) && started_ != id) wake_.Wait(&mu_);
    if (verdict_) return NoGenerationLocked();
    if (aborted_ >= id) {
      if (!options_.is_chief)
        LogWarning("generation {} did not come up: {}", id & 0xffffffff, abort_reason_);
      continue;
    }
    SetPhaseLocked(Phase::kStarting);
    in_loop_ = true;
    return generation;
  }
}

absl::StatusOr<MemberImpl::Replicas> MemberImpl::Form(const proto::Formation& formation,
                                                      Generation* generation) {
  GroupSpec spec;
  spec.generation = formation.generation();
  spec.ticket = formation.ticket();
  spec.backend = options_.backend;
  spec.formation_timeout = options_.timeouts.formation;
  spec.operation_timeout = options_.timeouts.collective;
  spec.link_timeout = options_.timeouts.heartbeat;
  spec.recorder = recorder_;
  std::vector<std::vector<int>> cpus;
  int on_host = 0;
  for (const proto::RosterEntry& entry : formation.members()) {
    if (entry.task() == options_.task) spec.rank = static_cast<int>(spec.members.size());
    spec.members.push_back(
        {entry.task(), entry.host_id(), entry.data_address(), entry.num_replicas()});
    generation->replicas_per_rank.push_back(entry.num_replicas());
    if (entry.host_id() != options_.host.id) continue;
    on_host += entry.num_replicas();
    cpus.emplace_back(entry.cpus().begin(), entry.cpus().end());
  }
  const CoreShare share = ShareCores(cpus, on_host);
  spec.spin = share.spin;
  spec.progress_thread = share.progress_thread;
  generation->id = formation.generation();
  generation->rank = spec.rank;
  generation->replicas_on_host = on_host;
  generation->owner = formation.newest_rank();
  generation->owner_step = formation.newest_step();
  {
    absl::MutexLock lock(&mu_);
    generation->run_id = welcome_->run_id;
  }
  return options_.form(spec, generation->replicas_per_rank, [this, id = spec.generation] {
    absl::MutexLock lock(&mu_);
    return OverLocked(id);
  });
}

MemberImpl::Replicas MemberImpl::HoldLocked(uint64_t generation, Replicas made) {
  communicators_.clear();
  communicators_generation_ = generation;
  Replicas handed_out;
  for (auto& communicator : made) {
    std::shared_ptr<Communicator> shared = std::move(communicator);
    communicators_.push_back(shared);
    handed_out.push_back(std::make_unique<HeldCommunicator>(std::move(shared)));
  }
  return handed_out;
}

void MemberImpl::SetPhaseLocked(Phase phase) {
  if (phase_ == phase) return;
  phase_since_ = Clock::now();
  phase_ = phase;
  recorder_->EnterPhase(phase, step_);
}

void MemberImpl::SetPhase(Phase phase, int64_t step) {
  absl::MutexLock lock(&mu_);
  // Training has begun: should this process be lost before its next heartbeat, the verdict can say
  // so.
  const bool begun = phase_ == Phase::kStarting || phase_ == Phase::kForming;
  if (phase != phase_ || step != step_) {
    phase_since_ = Clock::now();
    recorder_->EnterPhase(phase, step);
  }
  phase_ = phase;
  step_ = step;
  if (begun) ChangedLocked();
}

absl::Status MemberImpl::Explain(const absl::Status& local) {
  absl::MutexLock lock(&mu_);
  in_loop_ = false;
  const uint64_t id = communicators_generation_;
  if (id == 0 && !verdict_) return local;
  if (!OverLocked(id)) {
    collective_error_.emplace();
    collective_error_->set_generation(id);
    collective_error_->set_message(std::string(Message(local)));
    ChangedLocked();
    const absl::Time deadline = absl::Now() + absl::FromChrono(options_.timeouts.explain);
    while (!OverLocked(id))
      if (wake_.WaitWithDeadline(&mu_, deadline)) break;
  }
  if (verdict_) return VerdictStatusLocked();
  if (aborted_ >= id) return Superseded(abort_reason_);
  return local;  // the coordinator is alive but does not know better
}

void MemberImpl::ReportFailure(const absl::Status& failure) {
  EarlyFailure report;
  {
    absl::MutexLock lock(&mu_);
    in_loop_ = false;
    if (verdict_ || failure.ok()) return;
    recorder_->Note(FlightKind::kFailure, Message(failure));
    const bool joined = welcome_.has_value();
    report = {options_.task, options_.chief_address, options_.cluster_digest,
              failure,       joined ? step_ : -1,    phase_,
              incarnation_,  options_.channel};
  }
  const absl::Status told = ReportFailureTo(report, options_.timeouts.report, [this] {
    absl::MutexLock lock(&mu_);
    return verdict_.has_value();
  });
  absl::MutexLock lock(&mu_);
  if (!told.ok()) {
    if (!verdict_) LogWarning("the chief does not know of this failure: {}", Message(told));
    if (!verdict_) KeepRecordLocked(std::string(Message(failure)));
    return;
  }
  // It comes over the session, where there is one.
  const absl::Time deadline = absl::Now() + absl::FromChrono(options_.timeouts.explain);
  while (!verdict_ && session_up_)
    if (wake_.WaitWithDeadline(&mu_, deadline)) break;
}

void MemberImpl::RequestStop() {
  (options_.may_leave ? leave_ : stop_) = true;
  recorder_->Note(FlightKind::kStopRequested, "this process was asked to");
  absl::MutexLock lock(&mu_);
  ChangedLocked();
}

absl::Status MemberImpl::Finish(int64_t last_step, const absl::Status& outcome) {
  absl::MutexLock lock(&mu_);
  last_step_ = last_step;
  outcome_ = outcome;
  finished_ = true;
  in_loop_ = false;
  SetPhaseLocked(Phase::kEnding);
  ChangedLocked();
  // The thread bounds this wait by the chief's silence, the coordinator by timeouts.end.
  while (!OverLocked(std::max<uint64_t>(1, communicators_generation_))) wake_.Wait(&mu_);
  finished_ = false;
  if (!verdict_) return Superseded(abort_reason_);
  if (verdict_->code == ExitCodeOf(outcome)) return outcome;
  return VerdictStatusLocked();
}

absl::Status MemberImpl::WaitOver() {
  absl::MutexLock lock(&mu_);
  while (!OverLocked(std::max<uint64_t>(1, communicators_generation_))) wake_.Wait(&mu_);
  in_loop_ = false;
  if (!verdict_) return Superseded(abort_reason_);
  return verdict_->code == ExitCode::kDone ? absl::OkStatus() : VerdictStatusLocked();
}

std::optional<Verdict> MemberImpl::verdict() const {
  absl::MutexLock lock(&mu_);
  return verdict_;
}

std::string MemberImpl::FinalLine(const absl::Status& result) const {
  if (result.ok()) return "";
  absl::MutexLock lock(&mu_);
  if (verdict_ && verdict_->code != ExitCode::kDone)
    return muster::FinalLine(*verdict_, options_.task, options_.is_chief);
  if (ExitCodeOf(result) == ExitCode::kPreempted) return std::string(Message(result));
  return muster::FinalLine({ExitCodeOf(result), options_.task, options_.host.name,
                            welcome_ ? step_ : -1, phase_, std::string(Message(result))},
                           options_.task, options_.is_chief);
}

}  // namespace

std::unique_ptr<Member> Member::Make(MemberOptions options) {
  auto member = std::make_unique<MemberImpl>(std::move(options));
  member->StartThread();
  return member;
}

CoreShare ShareCores(const std::vector<std::vector<int>>& cpus_of_processes, int replicas_on_host) {
  std::set<int> cores;
  for (const auto& cpus : cpus_of_processes) cores.insert(cpus.begin(), cpus.end());
  const int available = static_cast<int>(cores.size());
  return {replicas_on_host, replicas_on_host <= available, replicas_on_host < available};
}

}  // namespace muster
