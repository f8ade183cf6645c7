// The launcher's signals as a file descriptor, so that one poll waits for them together with other
// descriptors.
#pragma once

#include <optional>

#include "deploy/launcher/child.h"
#include "muster/status.h"

namespace muster {

class SignalQueue {
 public:
  // Blocks SIGINT, SIGTERM, SIGHUP (unless ignored, as under nohup), SIGCHLD, SIGTSTP and SIGWINCH
  // for this thread. Ignores SIGPIPE.
  static absl::StatusOr<SignalQueue> Open();
  int fd() const { return fd_.get(); }
  // Returns the next pending signal, or nullopt.
  std::optional<int> Next();

 private:
  Fd fd_;
};

}  // namespace muster
