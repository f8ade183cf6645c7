// A Child is one process that `muster launch` starts on this host. A child has its own process
// group, and its output goes to pipes. When the thread that started a child ends, the kernel kills
// the child. Therefore, start children only on the launcher's main thread.
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
  std::vector<std::string> arguments;  // The program's path and its arguments.
  // The child has the environment of this process with these variables added or replaced.
  std::map<std::string, std::string> environment;
  // The name of an environment variable for the child. The variable's value is a file descriptor.
  // The child writes JSON lines to this descriptor, with its progress and with reports about lost
  // tasks. Empty: the child has no such descriptor.
  std::string progress_variable;
  int input = -1;  // The descriptor that becomes the child's standard input. Below 0: /dev/null.
};

// How a process ended.
struct ExitReport {
  int code = 0;    // The process's exit code, or 128 + signal.
  int signal = 0;  // The signal that killed the process. 0: the process exited.
  // The name of the task's host, if the task was lost because the launcher lost its connection to
  // that host. In this case, `code` is kRetryable (138). Empty in all other cases.
  std::string host = {};
  friend bool operator==(const ExitReport&, const ExitReport&) = default;
};

// `leader` is a child of this process, and leads a process group. Returns nullopt while the child
// runs. If the child has ended, kills the rest of the group, reaps the child, and returns how the
// child ended. After that, ReapGroup must not be called for this child. Does not block.
std::optional<ExitReport> ReapGroup(pid_t leader);

class Child {
 public:
  // Blocks until exec of the program has succeeded or failed. On failure, returns a
  // ConfigurationError (muster/status.h) that names the program. The child starts with SIGINT and
  // SIGTERM blocked, and must unblock them.
  static absl::StatusOr<Child> Start(const ChildOptions& options);
  Child(Child&&) = default;
  Child& operator=(Child&&) = default;

  pid_t pid() const { return pid_; }
  // The read ends of the child's pipes, which are non-blocking. The caller closes each descriptor
  // when read() returns 0.
  Fd out, err, progress;

  // Sends the signal to the child's process group. Has no effect once the child has been reaped.
  void Signal(int signal) const;
  // Works as ReapGroup, but may be called again. Returns nullopt if an earlier call has already
  // returned the report.
  std::optional<ExitReport> Reap();

 private:
  Child() = default;
  pid_t pid_ = -1;
  bool reaped_ = false;
};

}  // namespace muster::launcher
