// The launcher's signals as a file descriptor, so that one poll waits for them with all else.
#pragma once

#include <optional>

#include "deploy/launcher/child.h"
#include "muster/status.h"

namespace muster {

class SignalQueue {
 public:
  // Blocks SIGINT, SIGTERM, SIGHUP (unless ignored, as under nohup), SIGCHLD, SIGTSTP and SIGWINCH
  // for this thread; SIGPIPE is ignored.
  static absl::StatusOr<SignalQueue> Open();
  int fd() const { return fd_.get(); }
  // The next signal; nullopt: none waits.
  std::optional<int> Next();

 private:
  Fd fd_;
};

}  // namespace muster
