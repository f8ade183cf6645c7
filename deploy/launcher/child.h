// One process of the local cluster: started in a process group of its own, killed by the kernel
// when the launcher dies, its output on pipes. For the launcher's main thread only (a child dies
// with the thread that started it).
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "muster/status.h"

namespace muster {

struct ChildOptions {
  std::vector<std::string> arguments;              // the first one is the program's path
  std::map<std::string, std::string> environment;  // added to this process's, or replacing it
  // A variable that gets the number of a file descriptor on which the child tells of its progress,
  // and of tasks that its job has lost, as JSON lines; empty: none.
  std::string progress_variable;
};

// How a process ended.
struct ExitReport {
  int code = 0;    // its own exit code, or 128 + signal
  int signal = 0;  // 0: it exited
  friend bool operator==(const ExitReport&, const ExitReport&) = default;
};

class Child {
 public:
  // Returns once the program runs (its exec has succeeded), with SIGINT and SIGTERM blocked: it
  // takes them when it is ready to. Errors are ConfigurationErrors that name the program.
  static absl::StatusOr<Child> Start(const ChildOptions& options);
  Child(Child&&) = default;
  Child& operator=(Child&&) = default;

  pid_t pid() const { return pid_; }
  // Non-blocking ends to read from; closed by whoever read to their end.
  Fd out, err, progress;

  // To the whole process group. Does nothing once the child has been reaped.
  void Signal(int signal) const;
  // How it ended, once it has; does not wait. Whatever is left of its process group is killed.
  std::optional<ExitReport> Reap();

 private:
  Child() = default;
  pid_t pid_ = -1;
  bool reaped_ = false;
};

}  // namespace muster
