#include "common/membership/member.h"

#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "common/base/logging.h"
#include "common/base/wait.h"
#include "common/membership/action_executor.h"
#include "common/membership/member_group.h"
#include "common/membership/member_messages.h"

namespace muster::membership {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
// This long without a tick means that the process was stopped.
constexpr Duration kStall = std::chrono::seconds(1);
// Time to deliver the record of a process that hangs.
constexpr Duration kLastWords = std::chrono::seconds(3);

uint64_t RandomNumber() {
  uint64_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number || number == 0) {
  }
  return number;
}

MemberRules RulesOf(const MemberOptions& options) {
  return {.task = options.task,
          .host = options.host.name,
          .chief_task = options.chief_task,
          .chief_address = options.chief_address,
          .is_chief = options.is_chief,
          .may_leave = options.may_leave,
          .timeouts = options.timeouts};
}

class MemberImpl final : public Member {
 public:
  explicit MemberImpl(MemberOptions options);
  ~MemberImpl() override;

  absl::StatusOr<JoinReply> Join() override;
  std::optional<Verdict> verdict() const override;
  std::string FinalLine(const absl::Status& result) const override;
  absl::Status WaitOver() override;
  uint64_t incarnation() const override { return incarnation_; }

  absl::StatusOr<Generation> NextGeneration(int64_t last_step) override;
  void SetPhase(Phase phase, int64_t step) override;
  absl::Status Explain(const absl::Status& local) override;
  void ReportFailure(const absl::Status& failure) override;
  void RequestStop() override { Feed(StopReceived{}); }
  bool StopRequested() const override { return stop_.load(std::memory_order_relaxed); }
  absl::Status Finish(int64_t last_step, const absl::Status& outcome) override;
  bool JobEnded() const override { return verdict().has_value(); }

 private:
  using Replicas = CommunicatorRegistry::Replicas;

  // Applies one event and carries out the resulting actions.
  void Feed(MemberEvent event);
  // Returns the log lines, which the caller must write without mu_.
  [[nodiscard]] std::vector<Log> FeedLocked(MemberEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Print(const std::vector<Log>& lines);
  void OnMessage(const proto::CoordinatorMessage& message);

  // The thread, and its calls to main: NotifyVerdict, NotifyStuck, NotifySilence.
  void Run();
  void Call(const MemberAction& action);

  // Blocks until a generation is offered. Returns nullopt if the job has a verdict, or if the
  // offered generation is over and the loop must ask again.
  std::optional<GroupPlan> AwaitOffer();
  // Makes the links of a generation and reports the result.
  absl::StatusOr<Replicas> Form(const GroupPlan& plan);
  absl::Status VerdictStatusLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return VerdictStatus(rules_, *state_.verdict);
  }
  // Returns the result instead of a generation once the job has a verdict.
  absl::StatusOr<Generation> NoGeneration() const;

  const MemberOptions options_;
  const MemberRules rules_;
  const uint64_t incarnation_ = RandomNumber();
  // Copy of state_.report.stop_requested, which the loop reads at each step.
  std::atomic<bool> stop_ = false;

  mutable absl::Mutex mu_;
  CondVar wake_;  // Signalled when anything below changes.
  PausingClock clock_ ABSL_GUARDED_BY(mu_){kStall};
  MemberState state_ ABSL_GUARDED_BY(mu_);
  // Calls to main that the thread must make.
  std::vector<MemberAction> calls_ ABSL_GUARDED_BY(mu_);
  bool muted_ ABSL_GUARDED_BY(mu_) = false;  // A planned fault blocks all messages of the session.
  bool exiting_ ABSL_GUARDED_BY(mu_) = false;

  std::unique_ptr<ActionExecutor> executor_;
  std::thread thread_;
};

MemberImpl::MemberImpl(MemberOptions options)
    : options_(std::move(options)), rules_(RulesOf(options_)) {
  auto channel = rpc::RenewableChannel::Make(options_.chief_address, options_.channel);
  {
    absl::MutexLock lock(&mu_);
    state_ = MemberState(clock_.Now(), options_.timeouts.heartbeat);
  }
  executor_ = std::make_unique<ActionExecutor>(
      options_, incarnation_, channel.ok() ? *channel : nullptr,
      ActionExecutor::Callbacks{
          .on_message = [this](const proto::CoordinatorMessage& message) { OnMessage(message); },
          .on_event = [this](MemberEvent event) { Feed(std::move(event)); }});
  if (!channel.ok())
    Feed(membership::JobEnded{.verdict = {.code = ExitCodeOf(channel.status()),
                                          .task = options_.task,
                                          .host = options_.host.name,
                                          .message = std::string(Message(channel.status()))}});
  thread_ = std::thread([this] { Run(); });
}

MemberImpl::~MemberImpl() {
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
    wake_.SignalAll();
  }
  thread_.join();
  executor_->Close();
}

// ---- events and actions

void MemberImpl::Feed(MemberEvent event) {
  std::vector<Log> lines;
  {
    absl::MutexLock lock(&mu_);
    lines = FeedLocked(std::move(event));
  }
  Print(lines);
}

std::vector<Log> MemberImpl::FeedLocked(MemberEvent event) {
  const Stage stage = state_.stage;
  const SessionStage session = state_.session.stage;
  const PausingTime now = clock_.Now();
  MemberChange change = Apply(rules_, now, std::move(state_), std::move(event));
  state_ = std::move(change.state);
  stop_.store(state_.report.stop_requested, std::memory_order_relaxed);
  std::vector<Log> lines;
  for (MemberAction& action : change.actions) {
    if (auto* line = std::get_if<Log>(&action)) {
      lines.push_back(std::move(*line));
    } else if (!executor_->Do(action, state_, now)) {
      calls_.push_back(std::move(action));
    }
  }
  if (state_.changed || !calls_.empty() || state_.stage != stage || state_.session.stage != session)
    wake_.SignalAll();
  return lines;
}

void MemberImpl::Print(const std::vector<Log>& lines) {
  for (const auto& [warning, line] : lines) {
    if (warning) {
      LogWarning("{}", line);
    } else {
      LogInfo("{}", line);
    }
  }
}

void MemberImpl::OnMessage(const proto::CoordinatorMessage& message) {
  std::optional<MemberEvent> event = EventOf(message);
  if (!event) return;
  std::vector<Log> lines;
  {
    absl::MutexLock lock(&mu_);
    if (muted_) return;
    lines = FeedLocked(*std::move(event));
  }
  Print(lines);
}

// ---- the thread

void MemberImpl::Run() {
  while (true) {
    const MonotonicTime next = Clock::now() + kTick;
    {
      absl::MutexLock lock(&mu_);
      while (!exiting_ && calls_.empty() && (!state_.changed || muted_))
        if (wake_.WaitUntil(&mu_, next)) break;
    }
    const SessionFault fault =
        options_.session_fault ? options_.session_fault() : SessionFault::kNone;
    if (fault == SessionFault::kBroken) Feed(SessionCut{});
    std::vector<MemberAction> calls;
    std::vector<Log> lines;
    bool leaving = false;
    {
      absl::MutexLock lock(&mu_);
      muted_ = fault == SessionFault::kSilent;
      leaving = exiting_;
      lines = FeedLocked(Tick{.muted = muted_, .leaving = leaving});
      calls.swap(calls_);
    }
    Print(lines);
    if (executor_->session() != nullptr) executor_->session()->DropClosed();
    if (leaving) return;
    for (const MemberAction& action : calls) Call(action);
  }
}

void MemberImpl::Call(const MemberAction& action) {
  if (const auto* silence = std::get_if<NotifySilence>(&action)) {
    if (options_.on_chief_silent) options_.on_chief_silent(silence->chief_pid, silence->silence);
  } else if (const auto* stuck = std::get_if<NotifyStuck>(&action)) {
    executor_->records().WaitIdle(kLastWords);
    if (options_.on_stuck) options_.on_stuck(stuck->why);
  } else if (const auto* end = std::get_if<NotifyVerdict>(&action)) {
    if (end->given_up && options_.on_given_up) options_.on_given_up(end->verdict);
    if (options_.on_verdict) options_.on_verdict(end->verdict);
  }
}

// ---- the loop's calls

absl::StatusOr<JoinReply> MemberImpl::Join() {
  Feed(JoinRequested{});
  absl::MutexLock lock(&mu_);
  while (!state_.verdict && !state_.welcome) wake_.Wait(&mu_);
  if (state_.verdict && state_.verdict->code != ExitCode::kDone) return VerdictStatusLocked();
  return state_.welcome.value_or(JoinReply());
}

absl::StatusOr<Generation> MemberImpl::NoGeneration() const {
  const Verdict verdict = *this->verdict();
  if (verdict.code != ExitCode::kDone) return VerdictStatus(rules_, verdict);
  if (!verdict.message.empty()) LogInfo("{}", verdict.message);
  Generation none;
  none.job_done = true;
  return none;
}

absl::StatusOr<Generation> MemberImpl::NextGeneration(int64_t last_step) {
  while (true) {
    Feed(GenerationRequested{.last_step = last_step});
    std::optional<GroupPlan> plan = AwaitOffer();
    if (JobEnded()) return NoGeneration();
    if (!plan) continue;
    absl::StatusOr<Replicas> replicas = Form(*plan);
    std::string why;
    {
      const uint64_t id = plan->generation.id;
      absl::MutexLock lock(&mu_);
      // Failed links are never started; they are aborted.
      const auto started = [this, id]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return state_.start_given && state_.report.formed == id && state_.generation == id;
      };
      while (!state_.IsOver(id) && !started()) wake_.Wait(&mu_);
      if (!state_.IsOver(id)) {
        plan->generation.replicas = *std::move(replicas);
        return std::move(plan->generation);
      }
      why = state_.why_over;
    }
    if (JobEnded()) return NoGeneration();
    if (!options_.is_chief)
      LogWarning("generation {} could not be formed: {}", plan->generation.id & 0xffffffff, why);
  }
}

std::optional<GroupPlan> MemberImpl::AwaitOffer() {
  // The thread bounds this wait by the chief's silence and by timeouts.join.
  absl::MutexLock lock(&mu_);
  while (state_.stage == Stage::kWaiting) wake_.Wait(&mu_);
  if (state_.stage != Stage::kForming) return std::nullopt;
  GroupPlan plan = PlanGroup(*state_.roster, options_, executor_->records().recorder());
  plan.generation.run_id = state_.welcome->run_id;
  return plan;
}

absl::StatusOr<MemberImpl::Replicas> MemberImpl::Form(const GroupPlan& plan) {
  const uint64_t id = plan.generation.id;
  const absl::Status fit = CheckDeviceClash(plan.held_devices);
  using Made = absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>>;
  Made made = fit.ok() ? options_.form(plan.spec, plan.generation.replicas_per_rank,
                                       [this, id] {
                                         absl::MutexLock lock(&mu_);
                                         return state_.IsOver(id);
                                       })
                       : Made(fit);
  if (!made.ok()) {
    Feed(LinksFailed{.generation = id,
                     .message = std::string(Message(made.status())),
                     .code = ExitCodeOf(made.status())});
    return made.status();
  }
  Replicas replicas;
  for (auto& communicator : *made) replicas.push_back(std::move(communicator));
  const std::string description = replicas.empty() ? "" : replicas.front()->Describe();
  std::vector<Log> lines;
  {
    absl::MutexLock lock(&mu_);
    // Registered before the generation may start, so that the end of the generation aborts them.
    if (!state_.IsOver(id)) executor_->communicators().Register(replicas);
    lines = FeedLocked(LinksEstablished{.generation = id, .description = description});
  }
  Print(lines);
  return replicas;
}

void MemberImpl::SetPhase(Phase phase, int64_t step) {
  Feed(PhaseEntered{.phase = phase, .step = step});
}

absl::Status MemberImpl::Explain(const absl::Status& local) {
  Feed(CollectiveFailed{.message = std::string(Message(local))});
  const MonotonicTime until = Clock::now() + options_.timeouts.explain;
  absl::MutexLock lock(&mu_);
  const uint64_t generation = state_.report.formed;
  if (generation != 0)
    while (!state_.IsOver(generation))
      if (wake_.WaitUntil(&mu_, until)) break;
  if (state_.verdict) return VerdictStatusLocked();
  if (generation != 0 && state_.IsOver(generation)) return Superseded(state_.why_over);
  return local;  // The coordinator is alive but has no better explanation.
}

void MemberImpl::ReportFailure(const absl::Status& failure) {
  if (failure.ok() || JobEnded()) return Feed(LoopReturned{});
  Feed(LoopFailed{.message = std::string(Message(failure))});
  EarlyFailure report{.task = options_.task,
                      .chief_address = options_.chief_address,
                      .cluster_digest = options_.cluster_digest,
                      .failure = failure,
                      .incarnation = incarnation_,
                      .channel = options_.channel};
  {
    absl::MutexLock lock(&mu_);
    report.step = state_.welcome ? state_.report.step : -1;
    report.phase = state_.report.phase;
  }
  const absl::Status reported =
      ReportFailureTo(report, options_.timeouts.report, [this] { return JobEnded(); });
  if (!reported.ok())
    return Feed(FailureNotReported{.failure = std::string(Message(failure)),
                                   .why = std::string(Message(reported))});
  // If a session is open, the verdict arrives over it.
  const MonotonicTime until = Clock::now() + options_.timeouts.explain;
  absl::MutexLock lock(&mu_);
  while (!state_.verdict && state_.session.stage == SessionStage::kUp)
    if (wake_.WaitUntil(&mu_, until)) break;
}

absl::Status MemberImpl::Finish(int64_t last_step, const absl::Status& outcome) {
  Feed(LoopFinished{.last_step = last_step,
                    .outcome = ExitCodeOf(outcome),
                    .message = std::string(Message(outcome))});
  // The thread bounds this wait by the chief's silence, the coordinator by timeouts.end.
  absl::MutexLock lock(&mu_);
  while (state_.stage == Stage::kFinished) wake_.Wait(&mu_);
  if (!state_.verdict) return Superseded(state_.why_over);
  if (state_.verdict->code == ExitCodeOf(outcome)) return outcome;
  return VerdictStatusLocked();
}

absl::Status MemberImpl::WaitOver() {
  {
    absl::MutexLock lock(&mu_);
    while (!state_.IsOver(std::max<uint64_t>(1, state_.report.formed))) wake_.Wait(&mu_);
  }
  Feed(LoopReturned{});
  absl::MutexLock lock(&mu_);
  if (!state_.verdict) return Superseded(state_.why_over);
  return state_.verdict->code == ExitCode::kDone ? absl::OkStatus() : VerdictStatusLocked();
}

std::optional<Verdict> MemberImpl::verdict() const {
  absl::MutexLock lock(&mu_);
  return state_.verdict;
}

std::string MemberImpl::FinalLine(const absl::Status& result) const {
  if (result.ok()) return "";
  absl::MutexLock lock(&mu_);
  if (state_.verdict && state_.verdict->code != ExitCode::kDone)
    return muster::FinalLine(*state_.verdict, options_.task, options_.is_chief);
  if (ExitCodeOf(result) == ExitCode::kPreempted) return std::string(Message(result));
  return muster::FinalLine({.code = ExitCodeOf(result),
                            .task = options_.task,
                            .host = options_.host.name,
                            .step = state_.welcome ? state_.report.step : -1,
                            .phase = state_.report.phase,
                            .message = std::string(Message(result))},
                           options_.task, options_.is_chief);
}

}  // namespace

std::unique_ptr<Member> Member::Make(MemberOptions options) {
  return std::make_unique<MemberImpl>(std::move(options));
}

}  // namespace muster::membership
