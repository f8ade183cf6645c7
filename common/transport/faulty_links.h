// Cuts or freezes data connections on purpose (--fault drop, freeze). ListenerOptions::wrap inserts
// it between the listener and its users. Thread-safe.
#pragma once

#include <memory>

#include "common/base/clock.h"
#include "common/transport/byte_stream.h"

namespace muster::transport {

class FaultyLinks {
 public:
  FaultyLinks();
  ~FaultyLinks();
  // The stream keeps what it needs, so it may outlive this object.
  std::unique_ptr<ByteStream> Wrap(std::unique_ptr<ByteStream> stream);
  // Ends all current connections as a network failure would. Both sides notice.
  void Cut();
  // Stops all bytes in both directions for `time`, without an error to either side. Applies to
  // current connections and to new ones, except the reply to a hello.
  void Freeze(Duration time);

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace muster::transport
