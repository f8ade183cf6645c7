// The single port on which a process accepts data connections for its whole life, across
// generations. Also opens connections to other processes. Its own thread reads hellos. A peer that
// connects and sends nothing, invalid data, or too much costs a closed socket and one log line.
// Never uses a proxy. Thread-safe.
//
// With security, each connection is TLS 1.3 with certificates of both sides, and the hello is
// encrypted. Nothing is held for a peer that has not shown a certificate.
//
// A connection for a generation newer than any admitted one is held until this process begins to
// form that generation. The number and the time of held connections are bounded. A connection for a
// past generation is refused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/security/stream_security.h"
#include "common/transport/data_connection.h"
#include "common/transport/hello.h"
#include "muster/status.h"

namespace muster::transport {

struct ListenerOptions {
  std::string bind_address;    // Numeric address of this host; empty: all addresses.
  std::string advertise_host;  // Host in address(); empty: bind_address, else the loopback address.
  Duration hello_timeout = std::chrono::seconds(5);  // Includes the handshake.
  Duration hold_timeout = std::chrono::seconds(60);
  // Limits of connections without a hello: in total, and per address (for IPv6: per network).
  // Beyond them, the connections that have shown least are closed, the oldest first.
  size_t max_silent = 256, max_silent_each = 64;
  // Limits of early connections: in total, and per task or, without security, per address.
  size_t max_held = 256, max_held_each = 128;
  std::shared_ptr<security::StreamSecurity> security;  // Null: plain TCP.
  // Wraps the stream of each connection (faulty_links.h). Empty: streams are not wrapped.
  std::function<std::unique_ptr<ByteStream>(std::unique_ptr<ByteStream>)> wrap;
};

// A connection that is being opened. Dropping it cancels.
class Dialing {
 public:
  virtual ~Dialing() = default;
  // Returns nullopt while in progress. The connection can be taken once.
  virtual std::optional<absl::StatusOr<std::unique_ptr<DataConnection>>> TakeResult() = 0;
};

// For Admit: accepts connections with any `to`. The caller that takes one checks its `to`.
inline constexpr int kAnyone = -1;

// While it exists, connections with its ticket are accepted. Once it is destroyed, its generation
// is past.
class Admission {
 public:
  virtual ~Admission() = default;
  // Returns the connection that `from` opened, null if it has not arrived yet.
  virtual std::unique_ptr<DataConnection> Take(int from, uint32_t channel) = 0;
  // Returns any connection that was not taken yet, null if there is none.
  virtual std::unique_ptr<DataConnection> TakeAny() = 0;
};

struct DialRequest {
  std::string address;  // "host:port".
  Hello hello;
  MonotonicTime deadline;
  std::string peer;  // With security: the task that must answer ("worker:1"); empty: any.
};

class DataListener {
 public:
  // Returns ConfigurationError if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<DataListener>> Create(const ListenerOptions& options);
  virtual ~DataListener() = default;

  virtual std::string address() const = 0;  // "10.0.0.3:41234".

  // Accepts the connections of `generation` that are for `to` (or kAnyone) and have `ticket`,
  // including those that arrived early. REQUIRES: there is no other admission for this generation.
  virtual std::unique_ptr<Admission> Admit(uint64_t generation, int to,
                                           const std::string& ticket) = 0;
  // Connects, sends the hello and waits for the reply. Fails with PeerLost and the reason if
  // refused or unreachable. If the peer only has no room for another connection, it dials again
  // until the deadline.
  virtual std::unique_ptr<Dialing> Dial(const DialRequest& request) = 0;

  // Blocks until a connection arrived or a dial ended since `*seen`, or for `limit`. Updates
  // `*seen`.
  virtual void WaitForChange(uint64_t* seen, Duration limit) = 0;
};

}  // namespace muster::transport
