// The interface to the processes of a launch, one for each task. They run on this host
// (local_processes.h) or on other hosts (deploy/hosts/ssh_processes.h). All functions are called on
// the launcher's main thread. `task` is a task's index in the plan.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <optional>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "deploy/launcher/child.h"
#include "deploy/launcher/console.h"
#include "deploy/launcher/plan.h"
#include "deploy/launcher/signals.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::launcher {

// Receives the output of the processes. Called only from within functions of Processes.
class ProcessOutput {
 public:
  virtual ~ProcessOutput() = default;
  virtual void OnLine(size_t task, Console::Stream stream, std::string_view line) = 0;
  // A JSON line with progress, or about a lost task.
  virtual void OnProgress(size_t task, std::string_view line) = 0;
  // Prints a line of the launcher itself.
  virtual void Say(std::string_view line) = 0;
};

class Processes {
 public:
  virtual ~Processes() = default;

  // Chooses the address of each task, and checks that the tasks can start. Called once, before
  // Start. May block up to a deadline. Returns Preempted if a signal requests a stop meanwhile.
  virtual absl::StatusOr<std::vector<PlannedTask>> Plan(SignalQueue& signals) = 0;
  // Starts the process of a task. `restarts` is the number of earlier starts.
  virtual absl::Status Start(size_t task, int restarts) = 0;
  // Returns the pid of the task on its host, 0 if it is not known yet.
  virtual pid_t Pid(size_t task) const = 0;
  // Sends the signal to the process group of the task. Has no effect once Reap has reported it.
  virtual void Signal(size_t task, int signal) = 0;
  // Called with true before the launcher suspends itself (Ctrl-Z), after it has suspended the
  // tasks. Called with false when it continues.
  virtual void SetSuspended(bool suspended) = 0;
  // Returns the end of the process once, after all its output was passed to ProcessOutput.
  // Otherwise returns nullopt.
  virtual std::optional<ExitReport> Reap(size_t task) = 0;

  // Appends the descriptors to poll, and returns their number. The number changes only in Start. If
  // `output` is false, leaves out the output of the tasks.
  virtual size_t AddPolled(bool output, std::vector<pollfd>* polled) const = 0;
  // Reads the available output. `polled` points to the descriptors of AddPolled, after poll.
  virtual void Read(const pollfd* polled) = 0;
  // Handles timeouts and ended processes. Returns the latest time for the next call: `now` if a
  // task has ended, because no other event may follow.
  virtual std::optional<MonotonicTime> Tick(MonotonicTime now) = 0;

  // Returns the content of this run's result.json, null if there is none.
  virtual Json Result() const = 0;
};

}  // namespace muster::launcher
