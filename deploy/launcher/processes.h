// The processes of a launch, one for each task. They are processes of this host
// (local_processes.h), or of other hosts (deploy/hosts/ssh_processes.h). All functions are called
// on the launcher's main thread, and a task is named by its index in the plan.
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

// Receives what the processes write. Processes calls it from its own functions.
class ProcessOutput {
 public:
  virtual ~ProcessOutput() = default;
  virtual void OnLine(size_t task, Console::Stream stream, std::string_view line) = 0;
  // A JSON line about the progress, or about a lost task.
  virtual void OnProgress(size_t task, std::string_view line) = 0;
  // A line of the launcher itself.
  virtual void Say(std::string_view line) = 0;
};

class Processes {
 public:
  virtual ~Processes() = default;

  // Chooses the address of each task, and checks that the tasks can start. Called once, before
  // Start. May block, up to a deadline. Returns Preempted if a signal asks to stop before.
  virtual absl::StatusOr<std::vector<PlannedTask>> Plan(SignalQueue& signals) = 0;
  // Starts the process of a task. `restarts` is the number of earlier starts.
  virtual absl::Status Start(size_t task, int restarts) = 0;
  // Returns the process ID on the host of the task. 0: it is not known yet.
  virtual pid_t Pid(size_t task) const = 0;
  // Sends the signal to the process group of the task. Has no effect once Reap has reported it.
  virtual void Signal(size_t task, int signal) = 0;
  // Called before the launcher itself stops (Ctrl-Z), with the tasks already stopped, and when it
  // goes on.
  virtual void SetSuspended(bool suspended) = 0;
  // Returns once how the process ended, after all its output.
  virtual std::optional<ExitReport> Reap(size_t task) = 0;

  // Appends the descriptors to poll, the same number in each call between two calls of Start.
  // Without `output`, leaves out what the tasks print. Returns the number of descriptors.
  virtual size_t AddPolled(bool output, std::vector<pollfd>* polled) const = 0;
  // Reads what is available. `polled` are those of AddPolled.
  virtual void Read(const pollfd* polled) = 0;
  // Does what is due, and returns the time of the next call at the latest: `now` if a task has
  // ended meanwhile, as there may be no other event.
  virtual std::optional<MonotonicTime> Tick(MonotonicTime now) = 0;

  // Returns the content of result.json of this run; null where there is none.
  virtual Json Result() const = 0;
};

}  // namespace muster::launcher
