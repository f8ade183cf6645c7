// Counts the bytes that a process exchanges with other tasks. A process passes CountBytes as
// ListenerOptions::wrap.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/transport/byte_stream.h"

namespace muster::transport {

// Thread-safe.
struct Traffic {
  std::atomic<int64_t> sent = 0, received = 0;
  void Add(int64_t bytes_sent, int64_t bytes_received) {
    sent.fetch_add(bytes_sent, std::memory_order_relaxed);
    received.fetch_add(bytes_received, std::memory_order_relaxed);
  }
};

// By transport. `tcp` has the bytes on data connections, without TLS's own. `shared_memory` has the
// data that processes of one host read from each other's memory. `nccl` has the data that NCCL must
// move at least, because NCCL counts nothing.
struct TaskTraffic {
  Traffic tcp, shared_memory, nccl;
};

// Returns a stream over `stream` that adds its bytes to `traffic`.
std::unique_ptr<ByteStream> CountBytes(std::unique_ptr<ByteStream> stream,
                                       std::shared_ptr<Traffic> traffic);

}  // namespace muster::transport
