// A Child is one process of the local cluster. It has its own process group, and its output goes to
// pipes. The kernel kills it when the thread that started it ends, so start children only on the
// launcher's main thread.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster::launcher {

struct ChildOptions {
  std::vector<std::string> arguments;  // The first one is the program's path.
  // Variables that are added to this process's environment or replace its values.
  std::map<std::string, std::string> environment;
  // The name of a variable that receives the number of a file descriptor. The child writes JSON
  // lines to this descriptor: its progress, and reports about lost tasks. Empty: none.
  std::string progress_variable;
  int input = -1;  // The descriptor that becomes the standard input. Below 0: none.
};

// The end of a process.
struct ExitReport {
  int code = 0;    // The child's exit code, or 128 + signal.
  int signal = 0;  // 0: the process exited.
  // If not empty: the connection to this host was lost, and with it the task. `code` is then
  // kRetryable.
  std::string host = {};
  friend bool operator==(const ExitReport&, const ExitReport&) = default;
};

// Returns the end of a child of this process that leads a process group, or nullopt while it runs.
// Does not block. Once the child has ended, kills the rest of its group and reaps the child. Must
// not be called again for a reaped child.
std::optional<ExitReport> ReapGroup(pid_t leader);

class Child {
 public:
  // Blocks until exec of the program has succeeded. SIGINT and SIGTERM are blocked in the child
  // until it unblocks them. Returns a ConfigurationError that names the program.
  static absl::StatusOr<Child> Start(const ChildOptions& options);
  Child(Child&&) = default;
  Child& operator=(Child&&) = default;

  pid_t pid() const { return pid_; }
  // Non-blocking read ends of the child's pipes. The caller closes each one at the end of its
  // stream.
  Fd out, err, progress;

  // Sends the signal to the child's process group. Has no effect once the child has been reaped.
  void Signal(int signal) const;
  // As ReapGroup, but may be called after it has returned the end of the child, and then returns
  // nullopt.
  std::optional<ExitReport> Reap();

 private:
  Child() = default;
  pid_t pid_ = -1;
  bool reaped_ = false;
};

}  // namespace muster::launcher
