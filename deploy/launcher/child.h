// One process of the local cluster. It has its own process group, the kernel kills it when the
// launcher dies, and its output goes to pipes. Use only on the launcher's main thread, because a
// child dies with the thread that started it.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster {

struct ChildOptions {
  std::vector<std::string> arguments;  // The first one is the program's path.
  // Added to this process's environment, or replacing its values.
  std::map<std::string, std::string> environment;
  // The variable that receives the number of a file descriptor. The child writes JSON lines to it,
  // about its progress and about tasks that its job has lost. Empty: none.
  std::string progress_variable;
};

// How a process ended.
struct ExitReport {
  int code = 0;    // The child's exit code, or 128 + signal.
  int signal = 0;  // 0: it exited.
  friend bool operator==(const ExitReport&, const ExitReport&) = default;
};

class Child {
 public:
  // Returns once the program runs, that is, its exec has succeeded. SIGINT and SIGTERM are blocked
  // in the child until it is ready for them. Errors are ConfigurationErrors that name the program.
  static absl::StatusOr<Child> Start(const ChildOptions& options);
  Child(Child&&) = default;
  Child& operator=(Child&&) = default;

  pid_t pid() const { return pid_; }
  // Non-blocking read ends. The reader closes each at its end.
  Fd out, err, progress;

  // Sends the signal to the whole process group. No-op once the child has been reaped.
  void Signal(int signal) const;
  // Returns how the child ended, or nullopt while it runs. Does not wait. Kills the rest of its
  // process group.
  std::optional<ExitReport> Reap();

 private:
  Child() = default;
  pid_t pid_ = -1;
  bool reaped_ = false;
};

}  // namespace muster
