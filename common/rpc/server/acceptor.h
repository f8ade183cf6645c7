// The accept loop in front of a gRPC server. The Acceptor enforces limits that gRPC does not have:
// the number of connections, the number of strangers, and the time until the first byte. If the
// process has no free descriptor or memory for a connection, the Acceptor closes the connection and
// logs one line.
//
// A connection begins as a *stranger*. The connection becomes *proven* when it receives a call of
// any service except health and reflection. With TLS, the call proves the caller's identity.
// Without TLS, the call only proves that the caller speaks gRPC.
//
// A *source* is an IPv4 address or a /64 network of IPv6. If a new connection exceeds a limit, the
// Acceptor closes the oldest stranger of the source that has the most strangers. There are two
// exceptions. For max_per_source, the Acceptor closes the oldest stranger of the new connection's
// source. For max_plaintext, the Acceptor closes the oldest plaintext connection. If there is no
// connection to close, the Acceptor refuses the new connection. A task of the job makes its first
// call within milliseconds, so the Acceptor rarely closes the connection of a task.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "muster/status.h"

namespace muster::rpc {

struct ConnectionLimits {
  int most = 1024;           // Maximum number of connections.
  int max_per_source = 768;  // Maximum number of connections of one source. Ignored with TLS.
  int max_strangers = 256;   // Maximum number of strangers, over all sources.
  int max_plaintext = 16;    // Maximum number of plaintext connections to a server with TLS.
  // Maximum time between the accept and the first byte.
  Duration first_byte = std::chrono::seconds(5);
};

// Returns the limits of a server with `peers` client processes. `descriptors` is the maximum number
// of open files of this process (RLIMIT_NOFILE). A connection uses two descriptors. All connections
// together use at most half of `descriptors`.
ConnectionLimits LimitsFor(int64_t descriptors, int peers);

struct AcceptorOptions {
  ConnectionLimits limits;
  bool tls = false;  // True: a connection that does not begin with TLS counts as plaintext.
  std::string name;  // "host:port", for the log.
};

// Thread-safe.
class Acceptor {
 public:
  // Receives a connection on which the first byte has arrived. The socket is non-blocking and
  // close-on-exec. Called on the acceptor's thread. Must not block.
  using Take = std::function<void(Fd connection, bool plaintext)>;

  static std::unique_ptr<Acceptor> Make(std::vector<Fd> listeners, AcceptorOptions options);
  virtual ~Acceptor() = default;  // Calls Stop.

  // Starts accepting. Must be called at most once.
  virtual absl::Status Start(Take take) = 0;

  // Makes a connection proven. The server calls Proved for each RPC except health and reflection
  // calls. `peer` is gRPC's name of the connection (ServerContext::peer).
  virtual void Proved(std::string_view peer) = 0;
  // Stops accepting and frees the ports. Connections that `take` has received stay open.
  virtual void Stop() = 0;

  struct Counts {
    // Open connections. A plaintext connection to a server with TLS also counts as a stranger.
    int strangers = 0, proven = 0, plaintext = 0;
    // Totals since Start.
    int64_t accepted = 0;
    int64_t silent = 0;       // Closed because no byte arrived in time.
    int64_t evicted = 0;      // Closed to make room for a new connection.
    int64_t turned_away = 0;  // Refused because there was no room.
    int64_t failed = 0;       // Closed because no descriptor or memory was free.
  };
  virtual Counts counts() const = 0;
  // Returns the source of the last failed TLS connection and the reason, as in "10.0.0.2: its
  // certificate has expired". A TLS connection has failed if it ended as a stranger, or if the
  // server does not use TLS. Returns "" if no connection failed in the last 30 s, or if a
  // connection of the same source became proven after the failure.
  virtual std::string last_refusal() const = 0;
};

}  // namespace muster::rpc
