// Waits until data connections are ready, with a deadline. Any thread can end a wait.
#pragma once

#include <atomic>
#include <span>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::transport {

class DataConnection;

// A signal that ends blocking calls. Once set, the signal stays set and ends all current and later
// calls that wait with it. Uses one descriptor. If the process has no free descriptor, waiting
// calls check the signal every few milliseconds instead. Thread-safe.
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
  const int fd_;  // An eventfd that is readable if the signal is set. -1 without a descriptor.
};

// A connection to wait for. `read`: wait until data can be read. `write`: wait until data can be
// written. If both are true, either event ends the wait.
struct Interest {
  DataConnection* connection = nullptr;
  bool read = false, write = false;
  // Set by WaitReady: data can be read or written as requested, or the connection has failed.
  bool ready = false;
};

enum class WaitResult { kReady, kDeadline, kAborted };

// Blocks until one of the connections is ready, the deadline has passed or the signal is set.
WaitResult WaitReady(std::span<Interest> interests, MonotonicTime deadline,
                     const AbortSignal& abort);

}  // namespace muster::transport
