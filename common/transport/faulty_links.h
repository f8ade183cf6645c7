// Data connections that can be cut, or frozen for a time, on purpose (--fault drop, freeze). Put
// between the listener and its users with ListenerOptions::wrap. All methods may be called from any
// thread.
#pragma once

#include <memory>

#include "common/base/clock.h"
#include "common/transport/byte_stream.h"

namespace muster::transport {

class FaultyLinks {
 public:
  FaultyLinks();
  ~FaultyLinks();
  // The stream holds on to what it needs: it may outlive this object.
  std::unique_ptr<ByteStream> Wrap(std::unique_ptr<ByteStream> stream);
  // Ends all connections that there are, as if the network had: both sides notice.
  void Cut();
  // For so long not a byte passes, in either direction, and nobody is told: neither on connections
  // that there are nor, but for the answer to a hello, on new ones.
  void Freeze(Duration time);

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace muster::transport
