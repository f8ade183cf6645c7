// Failures on purpose, as --fault asks for them: which fault is due where, and the acts that
// concern the whole process. docs/faults.md tells users; nothing of this exists without --fault.
//
//   KIND[=VALUE]@TASK:INDEX[:key=value...]      kill@worker:1:step=30
//
// Whoever comes to a moment that a fault may be planned for calls Faults::At, which may not return,
// may return late, or may throw. A fault happens once in a process's life, and not again in the
// process that takes a killed one's place.
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
// A member's links: data connections to its peers, the session with the chief.
enum class FaultLink { kData, kControl, kAll };
inline constexpr std::string_view kFaultLinkNames[] = {"data", "control", "all"};

struct Fault {
  FaultKind kind = FaultKind::kKill;
  std::string task;            // "worker:1", "worker:*" or "*"
  int64_t step = 0;            // at the first such moment of this step or a later one; 0: of any
  std::optional<Phase> phase;  // none given: forward, the program's code
  int nth = 1;                 // the n-th such moment, from then on
  // How long it lasts: delay, freeze. stop, disk-full: zero is for ever.
  Duration duration{};
  FaultLink link = FaultLink::kData;  // drop, freeze
  int number = 0;                     // its place on the command line, from 1; 0: of a random one
  // kRandom only: this many, of these steps.
  int count = 0;
  uint64_t seed = 0;
  int64_t last_step = 0;

  std::string Describe() const;  // "freeze data connections for 2 s"
};

// A ConfigurationError is one sentence that names the text and the mend.
absl::StatusOr<std::vector<Fault>> ParseFaults(const std::vector<std::string>& texts);
// Those of `self`, in order, random ones drawn: every process draws the same. `tasks` is the whole
// cluster ("chief:0", "worker:0", ...). Error: a fault for a task that the cluster has not.
absl::StatusOr<std::vector<Fault>> FaultsOf(const std::string& self, std::vector<Fault> faults,
                                            const std::vector<std::string>& tasks);

// All methods may be called from any thread.
class Faults {
 public:
  // What a process with these faults can do to its own links.
  struct Links {
    std::function<void(FaultLink)> drop;
    std::function<void(FaultLink, Duration)> freeze;
  };
  // The acts themselves, for a test to replace.
  struct Acts {
    std::function<void()> kill;               // does not return
    std::function<void(Duration wake)> stop;  // zero: somebody else wakes it
    std::function<void(Duration)> sleep;
  };
  static Acts RealActs();

  // `faults` are this process's own. A process that was started again `restarts` times leaves out
  // as many of those that end one, and what is planned for the step with which it begins, and for
  // moments before that.
  Faults(std::vector<Fault> faults, int restarts, Acts acts = RealActs());
  ~Faults();

  // Before training.
  void SetLinks(Links links);
  // This process has come to `phase` of `step`: the step under way, or, for save, evaluate and
  // ending, the number of steps done. Throws std::runtime_error where an exception is due. Without
  // a step: that of the call before.
  void At(Phase phase, int64_t step);
  void At(Phase phase);
  // For disk writes of checkpoints and summaries: OK, or kResourceExhausted while the disk is full.
  absl::Status CheckDisk(std::string_view path) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace muster
