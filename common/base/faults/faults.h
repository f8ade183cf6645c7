// Fault injection for tests, from the option --fault. Decides when a fault is due, and executes it
// on this process or its connections. docs/faults.md is the user's reference.
//
//   KIND[=VALUE]@TASK:INDEX[:key=value...]      kill@worker:1:step=30
//
// A training process calls Faults::At whenever it enters a phase. If a fault is due, the call does
// not return, returns late, or throws. A fault fires once in the life of a process, except `slow`,
// which delays each step. A fault that killed a process does not fire again in the restarted
// process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/phase.h"
#include "muster/status.h"

namespace muster {

enum class FaultKind {
  kKill,
  kStop,
  kDelay,
  kDrop,
  kFreeze,
  kException,
  kDiskFull,
  kRandom,
  kSlow
};
inline constexpr std::string_view kFaultNames[] = {
    "kill", "stop", "delay", "drop", "freeze", "exception", "disk-full", "random", "slow"};
// The connections that a fault affects: the data connections to peers, the session with the chief,
// or both.
enum class FaultLink { kData, kControl, kAll };
inline constexpr std::string_view kFaultLinkNames[] = {"data", "control", "all"};

struct Fault {
  FaultKind kind = FaultKind::kKill;
  std::string task;            // "worker:1", "worker:*" or "*".
  int64_t step = 0;            // The fault is due at this step or later. 0: at any step.
  std::optional<Phase> phase;  // Absent: forward, the phase that runs the program's code.
  int nth = 1;                 // Due at the n-th call of At that matches `step` and `phase`.
  // The duration of delay and freeze, and of slow in each step. For stop and disk-full, zero means
  // without end.
  Duration duration{};
  FaultLink link = FaultLink::kData;  // For drop and freeze.
  int number = 0;                     // The fault's position on the command line, from 1.
  // For kRandom only: the number of faults to draw, the seed, and the last step of a fault.
  int count = 0;
  uint64_t seed = 0;
  int64_t last_step = 0;

  std::string Describe() const;  // Returns "freeze data connections for 2 s".
};

// Parses the values of --fault. A ConfigurationError names the invalid text and says how to fix it.
absl::StatusOr<std::vector<Fault>> ParseFaults(const std::vector<std::string>& texts);
// Returns the faults of task `self` in order. Replaces each kRandom fault by faults drawn from its
// seed, so all processes draw the same faults. `tasks` has all tasks of the cluster ("chief:0",
// "worker:0", ...). Returns ConfigurationError for a fault of a task that is not in the cluster.
absl::StatusOr<std::vector<Fault>> FaultsOf(const std::string& self, std::vector<Fault> faults,
                                            const std::vector<std::string>& tasks);

// All methods are thread-safe.
class Faults {
 public:
  // Functions that drop or freeze the connections of this process.
  struct Links {
    std::function<void(FaultLink)> drop;
    std::function<void(FaultLink, Duration)> freeze;
  };
  // The functions that execute faults. Tests replace them.
  struct Actions {
    std::function<void()> kill;  // Does not return.
    // Continues after `wake`. Zero: another process must send SIGCONT.
    std::function<void(Duration wake)> stop;
    std::function<void(Duration)> sleep;
  };
  static Actions RealActions();

  // `faults` are the faults of this task, and `restarts` is how often it was restarted. Each
  // restart is taken as the result of one fault that ends a process. The first `restarts` such
  // faults, in order of their steps, therefore do not fire again. A restarted process also skips
  // all faults up to and including its first step.
  Faults(std::vector<Fault> faults, int restarts, Actions actions = RealActions());
  ~Faults();

  // Must be called before training.
  void SetLinks(Links links);
  // Executes the fault that is due, if any. Called when this process enters `phase` of `step`. In
  // the phases save, evaluate and ending, `step` is the number of completed steps. In other phases
  // it is the current step. The overload without `step` uses the step of the previous call. Throws
  // std::runtime_error if a fault of kind kException is due.
  void At(Phase phase, int64_t step);
  void At(Phase phase);
  // Returns kResourceExhausted while a fault of kind kDiskFull lasts, otherwise OK. Called before
  // checkpoints and summaries are written.
  absl::Status CheckDisk(std::string_view path) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace muster
