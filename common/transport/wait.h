// Waiting for data connections with a deadline, so that any thread can end the wait.
#pragma once

#include <atomic>
#include <span>

#include "common/base/clock.h"
#include "muster/status.h"

namespace muster::transport {

class DataConnection;

// Set once, from any thread; wakes every wait that watches it, now and later. One for each owner:
// it takes a descriptor. Where there is none left, waits look at it instead, every few
// milliseconds: whoever is short of descriptors can still be told to stop.
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
  const int fd_;  // an eventfd: readable for ever once set; -1 where there is none
};

struct Interest {
  DataConnection* connection = nullptr;
  bool read = false, write = false;
  bool ready = false;  // out: something can be moved, or the connection has failed
};

enum class WaitResult { kReady, kDeadline, kAborted };

// Blocks until one of the connections is ready, the deadline has passed or the signal is set.
WaitResult WaitReady(std::span<Interest> interests, MonotonicTime deadline,
                     const AbortSignal& abort);

}  // namespace muster::transport
