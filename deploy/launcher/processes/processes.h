// The interface to the processes of `muster launch`. There is one process for each task of the job
// (chief, workers, ps tasks, evaluator). local_processes.h implements the interface for this host.
// deploy/hosts/ssh_processes.h implements it for other hosts. All functions are called on the
// launcher's main thread. `task` is a task's index in the result of Plan.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <optional>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "deploy/launcher/console.h"
#include "deploy/launcher/plan.h"
#include "deploy/launcher/processes/child.h"
#include "deploy/launcher/processes/signals.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::launcher {

// Receives the output of the processes. The functions of Processes call the functions of this
// interface.
class ProcessOutput {
 public:
  virtual ~ProcessOutput() = default;
  virtual void OnLine(size_t task, Console::Stream stream, std::string_view line) = 0;
  // Receives a JSON line from a task, with its progress or a report about a lost task.
  virtual void OnProgress(size_t task, std::string_view line) = 0;
  // Prints a line of the launcher itself.
  virtual void Say(std::string_view line) = 0;
};

class Processes {
 public:
  virtual ~Processes() = default;

  // Chooses the address of each task, and checks that the tasks can start. Called once, before
  // Start. May block, but not forever. Returns Preempted if a signal in `signals` requests a stop.
  virtual absl::StatusOr<std::vector<PlannedTask>> Plan(SignalQueue& signals) = 0;
  // Starts the process of a task. `restarts` is the number of earlier starts of this task.
  virtual absl::Status Start(size_t task, int restarts) = 0;
  // Returns the pid of the task on its host, or 0 while the pid is unknown.
  virtual pid_t Pid(size_t task) const = 0;
  // Sends the signal to the process group of the task. Has no effect after Reap has returned the
  // task's report.
  virtual void Signal(size_t task, int signal) = 0;
  // Called with true when the launcher has suspended the tasks and is about to suspend itself
  // (Ctrl-Z). Called with false when the launcher continues.
  virtual void SetSuspended(bool suspended) = 0;
  // Returns how the process ended, after ProcessOutput has received all of the process's output.
  // Returns nullopt before that, and after the report has been returned once.
  virtual std::optional<ExitReport> Reap(size_t task) = 0;

  // Appends the descriptors for poll(), and returns the number of added descriptors. Only Start
  // changes this number. If `output` is false, the descriptors of the tasks' output are -1, so that
  // poll() ignores them.
  virtual size_t AddPolled(bool output, std::vector<pollfd>* polled) const = 0;
  // Reads the available output. `polled` points to the descriptors of AddPolled, as poll() returned
  // them.
  virtual void Read(const pollfd* polled) = 0;
  // Handles timeouts and ended processes. Returns the time by which Tick must be called again, or
  // nullopt if there is no such time. If this call has found an ended task, the time is `now`,
  // because there may be no other event that wakes the launcher.
  virtual std::optional<MonotonicTime> Tick(MonotonicTime now) = 0;

  // Returns the content of this run's result.json, or null if the run has none.
  virtual Json Result() const = 0;
};

}  // namespace muster::launcher
