#include "common/base/faults/faults.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/log_writer.h"
#include "common/base/logging.h"

namespace muster {
namespace {

// Stops this process. Forks a child that wakes it, because a stopped process cannot wake itself.
// The child makes only async-signal-safe calls.
void StopOwnProcess(Duration wake) {
  const pid_t self = getpid();
  pid_t waker = -1;
  if (wake > Duration::zero()) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wake);
    timespec time{static_cast<time_t>(seconds.count()),
                  static_cast<long>(std::chrono::nanoseconds(wake - seconds).count())};
    waker = fork();
    if (waker == 0) {
      // The child must not keep descriptors of this process open, such as ports and the launcher's
      // pipes.
      close_range(0, ~0U, 0);
      while (nanosleep(&time, &time) != 0) {
      }
      if (getppid() == self) kill(self, SIGCONT);
      _exit(0);
    }
    if (waker < 0) {
      LogError("cannot stop this process temporarily: fork failed (errno {})", errno);
      return;
    }
  }
  kill(self, SIGSTOP);
  if (waker > 0) waitpid(waker, nullptr, 0);
}

bool EndsProcess(const Fault& fault) {
  return fault.kind == FaultKind::kKill ||
         (fault.kind == FaultKind::kStop && fault.duration == Duration::zero());
}

// Returns whether `phase` comes before the first step of a generation. A fault's step is then not
// compared.
bool BeforeTraining(Phase phase) { return phase == Phase::kStarting || phase == Phase::kForming; }

}  // namespace

Faults::Actions Faults::RealActions() {
  return {[] {
            kill(getpid(), SIGKILL);
            while (true) pause();  // The signal is pending.
          },
          StopOwnProcess, [](Duration time) { std::this_thread::sleep_for(time); }};
}

struct Faults::State {
  struct Planned {
    Fault fault;
    int seen = 0;  // The number of matching calls of At so far.
    bool over = false;
    int64_t slowed_step = -1;  // For kSlow: the last step that it has delayed.
  };

  // Returns how long the faults of kind kSlow delay this call of At: once in each step.
  Duration SlowedLocked(Phase phase, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Returns the fault that is due at this call of At, if any. At most one is due, and kSlow never
  // is, except for the log line of its first step.
  std::optional<Fault> TakeLocked(Phase phase, int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void BeginLocked(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  int restarts = 0;
  Actions actions;
  absl::Mutex mutex;
  std::vector<Planned> planned ABSL_GUARDED_BY(mutex);
  // The first step of this process's training.
  std::optional<int64_t> first_step ABSL_GUARDED_BY(mutex);
  int64_t step ABSL_GUARDED_BY(mutex) = 0;
  int fired ABSL_GUARDED_BY(mutex) = 0;
  Links links ABSL_GUARDED_BY(mutex);
  // A time in ticks of Clock. The maximum means without end.
  std::atomic<Duration::rep> disk_full_until = 0;
};

Faults::Faults(std::vector<Fault> faults, int restarts, Actions actions)
    : state_(std::make_unique<State>()) {
  state_->restarts = restarts;
  state_->actions = std::move(actions);
  absl::MutexLock lock(&state_->mutex);
  std::stable_sort(faults.begin(), faults.end(),
                   [](const Fault& a, const Fault& b) { return a.step < b.step; });
  // Skips one of these faults for each restart, because the fault probably ended the process.
  int ended = restarts;
  for (Fault& fault : faults) {
    const bool over = EndsProcess(fault) && ended > 0;
    if (over) --ended;
    state_->planned.push_back({std::move(fault), 0, over});
  }
}

Faults::~Faults() = default;

void Faults::SetLinks(Links links) {
  absl::MutexLock lock(&state_->mutex);
  state_->links = std::move(links);
}

void Faults::State::BeginLocked(int64_t begin) {
  first_step = begin;
  for (Planned& plan : planned) {
    const int64_t at = plan.fault.step;
    if (restarts > 0 ? at <= begin : at != 0 && at < begin) plan.over = true;
  }
}

Duration Faults::State::SlowedLocked(Phase phase, int64_t now) {
  Duration delay{};
  for (Planned& plan : planned) {
    const Fault& fault = plan.fault;
    if (fault.kind != FaultKind::kSlow || plan.seen == 0 || plan.slowed_step == now ||
        fault.phase.value_or(Phase::kForward) != phase || now < fault.step)
      continue;
    plan.slowed_step = now;
    delay += fault.duration;
  }
  return delay;
}

std::optional<Fault> Faults::State::TakeLocked(Phase phase, int64_t now) {
  if (phase != Phase::kSave) step = now;  // A save continues during the next steps.
  if (!first_step) {
    // A fault before training may have ended the previous process, so a restarted one skips it.
    if (BeforeTraining(phase) && restarts > 0) return std::nullopt;
    // If the first call is for a phase after a step, the next step is the first one.
    const bool done = phase == Phase::kSave || phase == Phase::kEvaluate || phase == Phase::kEnding;
    if (!BeforeTraining(phase)) BeginLocked(now + (done ? 1 : 0));
  }
  Planned* due = nullptr;  // One fault per call of At. Other due faults wait for the next call.
  for (Planned& plan : planned) {
    const Fault& fault = plan.fault;
    if (plan.over || fault.phase.value_or(Phase::kForward) != phase || now < fault.step) continue;
    if (++plan.seen >= fault.nth && due == nullptr) due = &plan;
  }
  if (due == nullptr) return std::nullopt;
  due->over = true;
  ++fired;
  return due->fault;
}

void Faults::At(Phase phase) {
  int64_t step = 0;
  {
    absl::MutexLock lock(&state_->mutex);
    step = state_->step;
  }
  At(phase, step);
}

void Faults::At(Phase phase, int64_t step) {
  std::optional<Fault> due;
  Links links;
  int fired = 0;
  Duration slowed{};
  {
    absl::MutexLock lock(&state_->mutex);
    due = state_->TakeLocked(phase, step);
    slowed = state_->SlowedLocked(phase, step);
    links = state_->links;
    fired = state_->fired;
  }
  if (slowed > Duration::zero()) state_->actions.sleep(slowed);
  if (!due) return;
  LogWarning("fault {}: {} at step {}, phase {} ({} so far in this process)", due->number,
             due->Describe(), step, PhaseName(phase), fired);
  FlushLog();
  switch (due->kind) {
    case FaultKind::kKill:
      return state_->actions.kill();
    case FaultKind::kStop:
      return state_->actions.stop(due->duration);
    case FaultKind::kDelay:
      return state_->actions.sleep(due->duration);
    case FaultKind::kDrop:
      if (links.drop) links.drop(due->link);
      return;
    case FaultKind::kFreeze:
      if (links.freeze) links.freeze(due->link, due->duration);
      return;
    case FaultKind::kException:
      throw std::runtime_error(fmt::format("an exception that --fault {} asked for", due->number));
    case FaultKind::kDiskFull:
      state_->disk_full_until = due->duration == Duration::zero()
                                    ? Duration::max().count()
                                    : (Clock::now() + due->duration).time_since_epoch().count();
      return;
    case FaultKind::kRandom:  // Already drawn.
    case FaultKind::kSlow:    // Slept above.
      return;
  }
}

absl::Status Faults::CheckDisk(std::string_view path) const {
  const Duration::rep until = state_->disk_full_until;
  if (until == 0 || Clock::now().time_since_epoch().count() >= until) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format("{}: No space left on device (a --fault)", path));
}

}  // namespace muster
