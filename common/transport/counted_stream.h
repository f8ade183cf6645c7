// Counts the bytes of data connections. A process calls CountBytes in its ListenerOptions::wrap
// (data_listener.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/transport/byte_stream.h"

namespace muster::transport {

// The bytes on all data connections of a process, without the overhead of TLS.
struct Traffic {
  std::atomic<int64_t> sent = 0, received = 0;
};

// Returns a stream that calls `stream` and adds the moved bytes to `traffic`.
std::unique_ptr<ByteStream> CountBytes(std::unique_ptr<ByteStream> stream,
                                       std::shared_ptr<Traffic> traffic);

}  // namespace muster::transport
