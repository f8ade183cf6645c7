// Fault injection for tests. A fault is a planned failure of this process or of its connections.
// The option --fault defines a fault (docs/faults.md has the reference for users):
//
//   KIND[=VALUE]@TASK:INDEX[:key=value...]      kill@worker:1:step=30
//
// A training process calls Faults::At when it enters a phase of its work (common/base/phase.h).
// Faults::At then executes the fault that is due: for example, it kills the process, returns late
// or throws. A process executes each fault once, except `slow`, which delays every step. A fault
// that killed a process is not executed again in the restarted process. A process does not execute
// a fault with a step before the first step of the process.
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
// The connections that a fault affects. kData: the TCP connections to peers that carry data.
// kControl: the gRPC stream to the chief. kAll: both kinds.
enum class FaultLink { kData, kControl, kAll };
inline constexpr std::string_view kFaultLinkNames[] = {"data", "control", "all"};

struct Fault {
  FaultKind kind = FaultKind::kKill;
  std::string task;            // "worker:1", "worker:*" or "*".
  int64_t step = 0;            // The fault is due at this step or later. 0: at any step.
  std::optional<Phase> phase;  // Absent: Phase::kForward.
  // The fault is due at the `nth` call of At for `phase`, counted from 1. Calls before `step` do
  // not count.
  int nth = 1;
  // For kDelay, kFreeze, kStop and kDiskFull: how long the fault lasts. For kSlow: the delay of
  // each step. For kStop and kDiskFull, zero means without end.
  Duration duration{};
  FaultLink link = FaultLink::kData;  // Only for kDrop and kFreeze.
  int number = 0;                     // The fault's position on the command line, from 1.
  // Only for kRandom: `count` faults are drawn with the seed `seed`. Each drawn fault is due at a
  // step from `step` to `last_step`.
  int count = 0;
  uint64_t seed = 0;
  int64_t last_step = 0;

  // Returns a description, such as "freeze data connections for 2 s".
  std::string Describe() const;
};

// Parses the values of --fault. Returns a ConfigurationError that names the invalid text and says
// how to fix it.
absl::StatusOr<std::vector<Fault>> ParseFaults(const std::vector<std::string>& texts);
// Returns the faults of task `self`, in the order of `faults`. Replaces each kRandom fault by
// faults that are drawn from its seed. All processes therefore draw the same faults. `tasks` has
// all tasks of the cluster ("chief:0", "worker:0", ...). Returns a ConfigurationError for a fault
// of a task that is not in the cluster.
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
    // Stops this process for the time `wake`. Zero: until another process sends SIGCONT.
    std::function<void(Duration wake)> stop;
    std::function<void(Duration)> sleep;
  };
  static Actions RealActions();

  // `faults` are the faults of this task. `restarts` is the number of times that a supervisor has
  // restarted the task. The constructor assumes that each restart was caused by a fault that ends
  // the process (kKill, or kStop without end). The constructor therefore drops the first `restarts`
  // faults that end the process, in the order of their steps. If `restarts` is above 0, this
  // process also skips faults whose `step` is at most its first step.
  Faults(std::vector<Fault> faults, int restarts, Actions actions = RealActions());
  ~Faults();

  // Must be called before training.
  void SetLinks(Links links);
  // Executes the fault that is due, if any. Called when this process enters `phase`. In the phases
  // kSave, kEvaluate and kEnding, `step` is the number of completed steps. In all other phases,
  // `step` is the number of the current step. The overload without `step` uses the step of the
  // latest call for a phase other than kSave. Throws std::runtime_error if a fault of kind
  // kException is due.
  void At(Phase phase, int64_t step);
  void At(Phase phase);
  // Returns kResourceExhausted while a fault of kind kDiskFull lasts, otherwise OK. Called before a
  // file of a checkpoint or summary is written to `path`.
  absl::Status CheckDisk(std::string_view path) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace muster
