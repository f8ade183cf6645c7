// Fault injection by --fault: which fault is due at which moment, and the faults that affect the
// whole process. docs/faults.md is the user's reference. Nothing here is active without --fault.
//
//   KIND[=VALUE]@TASK:INDEX[:key=value...]      kill@worker:1:step=30
//
// Code calls Faults::At at each moment at which a fault may be planned. The call may not return,
// may return late, or may throw. A fault occurs once in a process's life. It does not occur again
// in the process that replaces a killed one.
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
  std::string task;  // "worker:1", "worker:*" or "*".
  int64_t step = 0;  // Due at the first such moment of this step or a later one. 0: of any step.
  std::optional<Phase> phase;  // Absent: forward, the program's code.
  int nth = 1;                 // Due at the n-th such moment from then on.
  // The duration of delay and freeze. For stop and disk-full, zero means without end.
  Duration duration{};
  FaultLink link = FaultLink::kData;  // For drop and freeze.
  int number = 0;  // Its position on the command line, from 1. 0: drawn from a random fault.
  // kRandom only: the number of faults, and the steps to draw them from.
  int count = 0;
  uint64_t seed = 0;
  int64_t last_step = 0;

  std::string Describe() const;  // Returns "freeze data connections for 2 s".
};

// Errors are ConfigurationErrors of one sentence that names the text and the fix.
absl::StatusOr<std::vector<Fault>> ParseFaults(const std::vector<std::string>& texts);
// Returns the faults of `self` in order, with random ones drawn. Every process draws the same
// faults. `tasks` is the whole cluster ("chief:0", "worker:0", ...). Returns an error for a fault
// of a task that is not in the cluster.
absl::StatusOr<std::vector<Fault>> FaultsOf(const std::string& self, std::vector<Fault> faults,
                                            const std::vector<std::string>& tasks);

// All methods are thread-safe.
class Faults {
 public:
  // The functions by which this process disturbs its own connections.
  struct Links {
    std::function<void(FaultLink)> drop;
    std::function<void(FaultLink, Duration)> freeze;
  };
  // The functions that execute faults. Tests replace them.
  struct Acts {
    std::function<void()> kill;               // Does not return.
    std::function<void(Duration wake)> stop;  // Zero: another process must wake it.
    std::function<void(Duration)> sleep;
  };
  static Acts RealActs();

  // `faults` are this process's own. After `restarts` restarts, the process skips as many of the
  // faults that end a process. It also skips faults planned for its first step, and for moments
  // before that step.
  Faults(std::vector<Fault> faults, int restarts, Acts acts = RealActs());
  ~Faults();

  // Must be called before training.
  void SetLinks(Links links);
  // Reports that this process has reached `phase` of `step`. `step` is the current step, or for
  // save, evaluate and ending the number of steps done. Throws std::runtime_error if an exception
  // is due. Without a step, the step of the previous call is used.
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
