// Waits for data connections with a deadline. Any thread can end the wait.
#pragma once

#include <atomic>
#include <span>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::transport {

class DataConnection;

// A signal that is set once, from any thread. It wakes all current and later waits that watch it.
// One per owner, because it uses a descriptor. If no descriptor is left, waits poll it every few
// milliseconds, so a process without free descriptors can still be stopped.
class AbortSignal {
 public:
  AbortSignal();
  ~AbortSignal();
  AbortSignal(const AbortSignal&) = delete;
  AbortSignal& operator=(const AbortSignal&) = delete;

  void Set();
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  int fd() const { return fd_; }

 private:
  std::atomic<bool> set_{false};
  const int fd_;  // An eventfd, readable forever once set; -1 if there is none.
};

struct Interest {
  DataConnection* connection = nullptr;
  bool read = false, write = false;
  bool ready = false;  // Output: bytes can be moved, or the connection has failed.
};

enum class WaitResult { kReady, kDeadline, kAborted };

// Blocks until one of the connections is ready, the deadline has passed or the signal is set.
WaitResult WaitReady(std::span<Interest> interests, MonotonicTime deadline,
                     const AbortSignal& abort);

}  // namespace muster::transport
