// Counts the bytes of data connections. A process passes CountBytes as ListenerOptions::wrap.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/transport/byte_stream.h"

namespace muster::transport {

// Bytes on all data connections of a process, without TLS's own.
struct Traffic {
  std::atomic<int64_t> sent = 0, received = 0;
};

// Returns a stream over `stream` that adds its bytes to `traffic`.
std::unique_ptr<ByteStream> CountBytes(std::unique_ptr<ByteStream> stream,
                                       std::shared_ptr<Traffic> traffic);

}  // namespace muster::transport
