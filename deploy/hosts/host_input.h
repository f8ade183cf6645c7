// HostInput writes to the standard input of a host's ssh without blocking. Any thread may call its
// functions, so that another than the main thread can send the pings.
#pragma once

#include <absl/synchronization/mutex.h>

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/files/fd.h"

namespace muster::hosts {

class HostInput {
 public:
  // Writes to `fd`, which does not block, from now on. Drops what has not been written.
  void Open(Fd fd);
  // Ends the input, and the pings.
  void Close();
  // Writes as much as possible now, and keeps the rest.
  void Write(std::string_view bytes);
  // Writes what is kept, as far as possible.
  void Flush() { Write({}); }
  // The descriptor to poll for POLLOUT. -1: nothing is kept.
  int waiting() const;

  // Whether Ping writes. REQUIRES for `on`: the other side takes messages.
  void SetPings(bool on);
  // Writes what is kept, else a ping if nothing was written for kPingEvery.
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
