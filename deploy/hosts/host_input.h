// HostInput writes to the standard input of the ssh process of a host, without blocking. ssh
// forwards the bytes to `muster run-tasks` on the host. Thread-safe: one thread sends pings, and
// the main thread writes everything else.
#pragma once

#include <absl/synchronization/mutex.h>

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/files/fd.h"

namespace muster::hosts {

class HostInput {
 public:
  // Sets the descriptor, which must be non-blocking. Drops the pending bytes of the previous
  // descriptor, and disables pings.
  void Open(Fd fd);
  // Closes the descriptor and disables pings.
  void Close();
  // Writes as many bytes as possible without blocking. Stores the rest as pending bytes.
  void Write(std::string_view bytes);
  // Writes pending bytes, as many as possible without blocking.
  void Flush() { Write({}); }
  // Returns the descriptor to poll for POLLOUT, or -1 if no bytes are pending.
  int waiting() const;

  // Enables or disables Ping. REQUIRES: if `on` is true, run-tasks accepts messages.
  void SetPings(bool on);
  // Writes pending bytes. If no bytes are pending and nothing was written for kPingEvery, writes a
  // ping. Has no effect while pings are disabled.
  void Ping(MonotonicTime now);

 private:
  void WriteLocked(std::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  Fd fd_ ABSL_GUARDED_BY(mutex_);
  std::string kept_ ABSL_GUARDED_BY(mutex_);
  bool pings_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicTime written_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::hosts
