// Waits until data connections are ready, with a deadline. Any thread can end a wait.
#pragma once

#include <atomic>
#include <span>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::transport {

class DataConnection;

// A signal that ends waits. It is set once and stays set. Setting it ends all current and later
// waits that watch it. Thread-safe. It uses a descriptor, so an owner needs only one signal. If no
// descriptor is left, waits poll the signal every few milliseconds.
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
  const int fd_;  // An eventfd that is readable once the signal is set, or -1 without descriptors.
};

// A connection to wait for, and what to wait for on it.
struct Interest {
  DataConnection* connection = nullptr;
  bool read = false, write = false;
  bool ready = false;  // Set by WaitReady: bytes can be moved, or the connection has failed.
};

enum class WaitResult { kReady, kDeadline, kAborted };

// Blocks until one of the connections is ready, the deadline has passed or the signal is set.
WaitResult WaitReady(std::span<Interest> interests, MonotonicTime deadline,
                     const AbortSignal& abort);

}  // namespace muster::transport
