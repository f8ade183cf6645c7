// Accepts data connections on one port, and opens data connections to other processes. A process
// keeps its DataListener and the port for its whole life. Never uses a proxy. Thread-safe.
//
// Each connection begins with a hello (hello.h), which names the connection's generation. A
// generation is a period of training with fixed members. Each new generation has a higher number. A
// thread of the listener reads the hellos. If a peer sends no hello in time, or an invalid hello,
// the listener closes the connection and logs one line.
//
// A connection is *early* if its generation is higher than all generations that this process has
// admitted (Admit). The listener holds an early connection until this process admits its
// generation. ListenerOptions limits the number of early connections and the time for which they
// are held. The listener refuses connections of past generations.
//
// With ListenerOptions::security, each connection uses TLS 1.3 and both sides present certificates.
// The hello is encrypted. The listener closes the connections of peers without a valid certificate.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/security/stream_security.h"
#include "common/transport/data_connection.h"
#include "common/transport/listener/hello.h"
#include "muster/status.h"

namespace muster::transport {

struct ListenerOptions {
  // A numeric address of this host, and the host in the result of address(). Empty: all addresses,
  // and address() has the loopback address.
  std::string bind_address;
  // Maximum time from the accept to the complete hello, including the TLS handshake.
  Duration hello_timeout = std::chrono::seconds(5);
  Duration hold_timeout = std::chrono::seconds(60);  // Maximum time to hold an early connection.
  // The maximum number of connections without a complete hello, in total and for each source. A
  // source is an IPv4 address or a /64 network of IPv6. If a limit is exceeded, the listener closes
  // the oldest of the connections with the least progress (PendingConnection::Stage).
  size_t max_silent = 256, max_silent_each = 64;
  // The maximum number of early connections, in total and for each task. Without security, the
  // second limit applies to each source.
  size_t max_held = 256, max_held_each = 128;
  std::shared_ptr<security::StreamSecurity> security;  // Null: plain TCP.
  // Called with the stream of each connection. The connection uses the returned stream instead, for
  // example a stream that injects faults (common/transport/faulty_links.h). May be null.
  std::function<std::unique_ptr<ByteStream>(std::unique_ptr<ByteStream>)> wrap;
};

// An attempt to open a data connection. The destructor cancels the attempt.
class Dialing {
 public:
  virtual ~Dialing() = default;
  // Returns the connection or the error. Returns nullopt while the attempt is in progress, and in
  // every call after the result has been returned.
  virtual std::optional<absl::StatusOr<std::unique_ptr<DataConnection>>> TakeResult() = 0;
};

// A value of `to` for DataListener::Admit. The listener then accepts connections with any `to`, and
// the caller must check the `to` of each connection that it takes.
inline constexpr int kAnyone = -1;

// While an Admission exists, the listener accepts connections of its generation. When the Admission
// is destroyed, its generation becomes a past generation.
class Admission {
 public:
  virtual ~Admission() = default;
  // Returns a connection whose hello has this `from` and `channel`, or null if none has arrived.
  virtual std::unique_ptr<DataConnection> Take(int from, uint32_t channel) = 0;
  // Returns any accepted connection, or null if there is none.
  virtual std::unique_ptr<DataConnection> TakeAny() = 0;
};

struct DialRequest {
  std::string address;  // "host:port".
  Hello hello;
  MonotonicTime deadline;  // The attempt fails with DeadlinePassed at this time.
  // The task that the peer's certificate must name ("worker:1"). Empty: any task. Ignored without
  // security.
  std::string peer;
};

class DataListener {
 public:
  // Binds a free port and starts the thread. Returns ConfigurationError if the address cannot be
  // bound.
  static absl::StatusOr<std::unique_ptr<DataListener>> Create(const ListenerOptions& options);
  virtual ~DataListener() = default;

  // Returns the address that other processes dial, "10.0.0.3:41234".
  virtual std::string address() const = 0;

  // Starts accepting connections of `generation`, including the early connections that are held.
  // Refuses a connection if its hello has another `to` or `ticket`. `to` may be kAnyone. REQUIRES:
  // there is no other Admission for this generation.
  virtual std::unique_ptr<Admission> Admit(uint64_t generation, int to,
                                           const std::string& ticket) = 0;
  // Starts to open a connection, and does not block. The attempt connects, sends the hello and
  // waits for the answer. The attempt fails with PeerLost if the peer is unreachable or refuses. If
  // the peer has no room for another connection, the listener dials again until the deadline.
  virtual std::unique_ptr<Dialing> Dial(const DialRequest& request) = 0;

  // Blocks until the next change, for at most `limit`. A change is an incoming connection or the
  // result of a Dialing. The listener counts the changes. `*seen` is the count that the caller has
  // seen, 0 before the first call. If the listener's count differs from `*seen`, returns at once.
  // Sets `*seen` to the listener's count.
  virtual void WaitForChange(uint64_t* seen, Duration limit) = 0;
};

}  // namespace muster::transport
