// Cuts or freezes data connections for fault injection (--fault drop, freeze). A process passes
// FaultyLinks::Wrap as ListenerOptions::wrap. Thread-safe.
#pragma once

#include <memory>

#include "common/base/clock.h"
#include "common/transport/byte_stream.h"

namespace muster::transport {

class FaultyLinks {
 public:
  FaultyLinks();
  ~FaultyLinks();
  // Returns a stream over `stream` that Cut and Freeze affect. The result may outlive this object.
  std::unique_ptr<ByteStream> Wrap(std::unique_ptr<ByteStream> stream);
  // Ends all current connections as a network failure would. Both sides get an error.
  void Cut();
  // Stops all bytes in both directions for `time`. Neither side gets an error. Applies to current
  // and new connections, but not to the reply to a hello.
  void Freeze(Duration time);

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace muster::transport
