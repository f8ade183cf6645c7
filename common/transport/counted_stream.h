// Counts the bytes that a process exchanges with other tasks. A process calls CountBytes in its
// ListenerOptions::wrap (listener/data_listener.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/transport/byte_stream.h"

namespace muster::transport {

// Numbers of bytes. Thread-safe.
struct Traffic {
  std::atomic<int64_t> sent = 0, received = 0;
  void Add(int64_t bytes_sent, int64_t bytes_received) {
    sent.fetch_add(bytes_sent, std::memory_order_relaxed);
    received.fetch_add(bytes_received, std::memory_order_relaxed);
  }
};

// The bytes of a process by transport. `tcp`: the bytes of all data connections, without the
// overhead of TLS. `shared_memory`: the bytes that processes of one host read from each other's
// memory. `nccl`: the minimum number of bytes that the collectives must move, because NCCL does not
// count bytes.
struct TaskTraffic {
  Traffic tcp, shared_memory, nccl;
};

// Returns a stream that forwards to `stream`, and adds the numbers of moved bytes to `traffic`.
std::unique_ptr<ByteStream> CountBytes(std::unique_ptr<ByteStream> stream,
                                       std::shared_ptr<Traffic> traffic);

}  // namespace muster::transport
