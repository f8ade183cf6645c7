// Cuts or freezes data connections, for fault injection with the command-line flag --fault. A
// process calls FaultyLinks::Wrap in its ListenerOptions::wrap (listener/data_listener.h).
// Thread-safe.
#pragma once

#include <memory>

#include "common/base/clock.h"
#include "common/transport/byte_stream.h"

namespace muster::transport {

class FaultyLinks {
 public:
  FaultyLinks();
  ~FaultyLinks();
  // Returns a stream that forwards to `stream`. Cut and Freeze apply to the returned stream, which
  // may outlive this object.
  std::unique_ptr<ByteStream> Wrap(std::unique_ptr<ByteStream> stream);
  // Ends all current connections as a network failure would. Both sides get an error.
  void Cut();
  // Stops all reads and writes for `time`, on current and new connections, without an error on
  // either side. The answer to a hello (listener/hello.h) is still sent.
  void Freeze(Duration time);

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace muster::transport
