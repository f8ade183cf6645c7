// SignalQueue delivers the launcher's signals through a file descriptor, so one poll call can wait
// for signals and other descriptors.
#pragma once

#include <optional>

#include "deploy/launcher/processes/child.h"
#include "muster/status.h"

namespace muster::launcher {

class SignalQueue {
 public:
  // Blocks SIGINT, SIGTERM, SIGCHLD, SIGTSTP and SIGWINCH for this thread, so that the queue
  // receives them. Also blocks SIGHUP, except if this process ignores SIGHUP, as under nohup. Makes
  // this process ignore SIGPIPE.
  static absl::StatusOr<SignalQueue> Open();
  int fd() const { return fd_.get(); }
  // Returns the next pending signal, or nullopt.
  std::optional<int> Next();

 private:
  Fd fd_;
};

}  // namespace muster::launcher
