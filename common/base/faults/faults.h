// Fault injection by --fault. Decides which fault is due, and executes it on this process or its
// connections. docs/faults.md is the user's reference. Nothing here is active without --fault.
//
//   KIND[=VALUE]@TASK:INDEX[:key=value...]      kill@worker:1:step=30
//
// The code calls Faults::At wherever a fault can be planned. The call may not return, may return
// late, or may throw. A fault fires once in the life of a process. It does not fire again in the
// process that replaces a killed one.
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

enum class FaultKind { kKill, kStop, kDelay, kDrop, kFreeze, kException, kDiskFull, kRandom };
inline constexpr std::string_view kFaultNames[] = {"kill",   "stop",      "delay",     "drop",
                                                   "freeze", "exception", "disk-full", "random"};
// The connections of a member: data connections to its peers, or the session with the chief.
enum class FaultLink { kData, kControl, kAll };
inline constexpr std::string_view kFaultLinkNames[] = {"data", "control", "all"};

struct Fault {
  FaultKind kind = FaultKind::kKill;
  std::string task;            // "worker:1", "worker:*" or "*".
  int64_t step = 0;            // The fault is not due before this step. 0: due at any step.
  std::optional<Phase> phase;  // Absent: forward, which runs the program's code.
  int nth = 1;                 // Due at the n-th call of At that matches `step` and `phase`.
  // The duration of delay and freeze. For stop and disk-full, zero means without end.
  Duration duration{};
  FaultLink link = FaultLink::kData;  // For drop and freeze.
  int number = 0;                     // Its position on the command line, from 1.
  // kRandom only: the number of faults, and the steps to draw them from.
  int count = 0;
  uint64_t seed = 0;
  int64_t last_step = 0;

  std::string Describe() const;  // Returns "freeze data connections for 2 s".
};

// Errors are ConfigurationErrors of one sentence that names the text and the fix.
absl::StatusOr<std::vector<Fault>> ParseFaults(const std::vector<std::string>& texts);
// Returns the faults of task `self` in order. Replaces each kRandom fault with drawn faults, which
// are the same in every process. `tasks` is the whole cluster ("chief:0", "worker:0", ...). Returns
// ConfigurationError for a fault of a task that is not in the cluster.
absl::StatusOr<std::vector<Fault>> FaultsOf(const std::string& self, std::vector<Fault> faults,
                                            const std::vector<std::string>& tasks);

// All methods are thread-safe.
class Faults {
 public:
  // Functions that disturb the connections of this process.
  struct Links {
    std::function<void(FaultLink)> drop;
    std::function<void(FaultLink, Duration)> freeze;
  };
  // The functions that execute faults. Tests replace them.
  struct Acts {
    std::function<void()> kill;               // Does not return.
    std::function<void(Duration wake)> stop;  // Zero: another process must send SIGCONT.
    std::function<void(Duration)> sleep;
  };
  static Acts RealActs();

  // `faults` are the faults of this process. `restarts` is the number of times that it was
  // restarted. Skips that many faults that end a process, in order of their steps, because they
  // have already fired. A restarted process also skips faults before its first step and those of
  // that step.
  Faults(std::vector<Fault> faults, int restarts, Acts acts = RealActs());
  ~Faults();

  // Must be called before training.
  void SetLinks(Links links);
  // Executes the fault that is due, if any. Call it when this process enters `phase` of `step`. In
  // save, evaluate and ending, `step` is the number of completed steps; otherwise it is the current
  // step. The overload without `step` uses the step of the previous call. Throws std::runtime_error
  // if an exception is due.
  void At(Phase phase, int64_t step);
  void At(Phase phase);
  // Called for disk writes of checkpoints and summaries. Returns OK, or kResourceExhausted while
  // the disk-full fault lasts.
  absl::Status CheckDisk(std::string_view path) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace muster
