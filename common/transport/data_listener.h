// Accepts data connections on one port, which a process keeps for its whole life, across
// generations. Also opens data connections to other processes. A thread of the listener reads the
// hellos. If a peer sends nothing, invalid data, or too much, the listener closes the connection
// and logs one line. Never uses a proxy. Thread-safe.
//
// With security, each connection uses TLS 1.3 with certificates of both sides, and the hello is
// encrypted. The listener holds no connection of a peer without a valid certificate.
//
// Some connections are early: their generation is newer than any admitted one. The listener holds
// them until this process admits that generation. ListenerOptions bounds their number and the
// waiting time. Connections of past generations are refused.
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
  std::string bind_address;  // A numeric address of this host. Empty: all addresses.
  // The host in address(). Empty: bind_address, or the loopback address if that is empty too.
  std::string advertise_host;
  Duration hello_timeout = std::chrono::seconds(5);  // Includes the TLS handshake.
  Duration hold_timeout = std::chrono::seconds(60);  // For early connections.
  // The maximum number of connections without a complete hello: in total, and per address (IPv6:
  // per /64 network). If a limit is exceeded, the listener closes the oldest of the connections
  // with the lowest PendingConnection::Stage.
  size_t max_silent = 256, max_silent_each = 64;
  // The maximum number of early connections: in total, and per task. Without security, the second
  // limit is per address.
  size_t max_held = 256, max_held_each = 128;
  std::shared_ptr<security::StreamSecurity> security;  // Null: plain TCP.
  // Wraps the stream of each connection (faulty_links.h). May be empty.
  std::function<std::unique_ptr<ByteStream>(std::unique_ptr<ByteStream>)> wrap;
};

// A data connection that is being opened. The destructor cancels the attempt.
class Dialing {
 public:
  virtual ~Dialing() = default;
  // Returns the connection or the error, or nullopt while the attempt is in progress. Returns the
  // result once, then nullopt again.
  virtual std::optional<absl::StatusOr<std::unique_ptr<DataConnection>>> TakeResult() = 0;
};

// A value for DataListener::Admit: connections with any `to` are accepted. The caller checks the
// `to` of each connection that it takes.
inline constexpr int kAnyone = -1;

// The listener accepts connections of one generation while its Admission exists. After the
// Admission is destroyed, that generation is past.
class Admission {
 public:
  virtual ~Admission() = default;
  // Returns a connection that `from` opened for `channel`, null if none has arrived.
  virtual std::unique_ptr<DataConnection> Take(int from, uint32_t channel) = 0;
  // Returns any accepted connection, null if there is none.
  virtual std::unique_ptr<DataConnection> TakeAny() = 0;
};

struct DialRequest {
  std::string address;  // "host:port".
  Hello hello;
  MonotonicTime deadline;
  // The task that the peer's certificate must name ("worker:1"). Empty: any task. Ignored without
  // security.
  std::string peer;
};

class DataListener {
 public:
  // Binds the port and starts the thread. Returns ConfigurationError if the address cannot be
  // bound.
  static absl::StatusOr<std::unique_ptr<DataListener>> Create(const ListenerOptions& options);
  virtual ~DataListener() = default;

  virtual std::string address() const = 0;  // "10.0.0.3:41234".

  // Starts accepting connections of `generation`, including early ones. Their hello must have this
  // `to` and `ticket`. `to` may be kAnyone. REQUIRES: there is no other admission for this
  // generation.
  virtual std::unique_ptr<Admission> Admit(uint64_t generation, int to,
                                           const std::string& ticket) = 0;
  // Starts an attempt: it connects, sends the hello and waits for the reply. Dial does not block.
  // The attempt fails with PeerLost if the peer is unreachable or refuses the connection. If the
  // peer has no room for another connection, the attempt is repeated until the deadline.
  virtual std::unique_ptr<Dialing> Dial(const DialRequest& request) = 0;

  // Blocks until a connection arrives or a dial ends, for at most `limit`. `*seen` is a counter of
  // such changes that the caller keeps, 0 at first. Returns at once if there were changes after
  // `*seen`. Updates `*seen`.
  virtual void WaitForChange(uint64_t* seen, Duration limit) = 0;
};

}  // namespace muster::transport
