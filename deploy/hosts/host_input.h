// HostInput writes to the standard input of a host's ssh without blocking. Thread-safe, because
// pings are sent on a thread of their own.
#pragma once

#include <absl/synchronization/mutex.h>

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/files/fd.h"

namespace muster::hosts {

class HostInput {
 public:
  // Sets the descriptor, which must be non-blocking. Drops pending bytes and disables pings.
  void Open(Fd fd);
  // Closes the descriptor and disables pings.
  void Close();
  // Writes as much as possible without blocking. Keeps the rest for Flush.
  void Write(std::string_view bytes);
  // Writes pending bytes, as many as possible without blocking.
  void Flush() { Write({}); }
  // Returns the descriptor to poll for POLLOUT, -1 if no bytes are pending.
  int waiting() const;

  // Enables or disables Ping. REQUIRES if `on`: run-tasks accepts messages.
  void SetPings(bool on);
  // Writes pending bytes. If there are none, writes a ping if nothing was written for kPingEvery.
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
