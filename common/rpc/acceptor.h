// The accept loop in front of a gRPC server. It enforces limits that gRPC does not have: the number
// of connections, the number of unproven connections, and the time until the first byte. If a
// descriptor or memory is missing, the acceptor closes one connection and logs one line.
//
// A connection is *proven* once a call arrives on it that only a peer may make (see Proved). With
// TLS, this proves the caller's identity. Without TLS, it only proves that the caller speaks gRPC.
// An unproven connection is a *stranger*. If there is no room for a new connection, the acceptor
// closes a stranger: the oldest one of the source with the most strangers. A member makes its first
// call within milliseconds, so there is always room for members.
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
  int most = 1024;           // All connections.
  int max_per_source = 768;  // Connections of one address (IPv6: of one /64). Ignored with TLS.
  int max_strangers = 256;   // Strangers of all sources.
  int max_plaintext = 16;    // Plaintext connections of a server with TLS.
  Duration first_byte = std::chrono::seconds(5);  // From the accept to the first byte.
};

// Returns the limits of a server with `peers` client processes, in a process that may open
// `descriptors` files. A connection uses two descriptors. The limits leave half of the descriptors
// to the rest of the process.
ConnectionLimits LimitsFor(int64_t descriptors, int peers);

struct AcceptorOptions {
  ConnectionLimits limits;
  bool tls = false;  // If true, connections that do not begin with TLS count as plaintext.
  std::string name;  // "host:port", for the log.
};

// Thread-safe.
class Acceptor {
 public:
  // Receives a connection on which a byte has arrived. The socket is non-blocking and
  // close-on-exec. Called on the acceptor's thread. Must not block.
  using Take = std::function<void(Fd connection, bool plaintext)>;

  static std::unique_ptr<Acceptor> Make(std::vector<Fd> listeners, AcceptorOptions options);
  virtual ~Acceptor() = default;  // Calls Stop.

  // Starts accepting. Must be called at most once.
  virtual absl::Status Start(Take take) = 0;

  // Reports a call that only a peer may make. `peer` is gRPC's name of the call's connection
  // (ServerContext::peer).
  virtual void Proved(std::string_view peer) = 0;
  // Stops accepting. The ports are free when it returns. Connections that `take` has received stay
  // open.
  virtual void Stop() = 0;

  struct Counts {
    int strangers = 0, proven = 0, plaintext = 0;  // Open connections.
    // Totals since Start.
    int64_t accepted = 0;
    int64_t silent = 0;       // Closed because no byte arrived in time.
    int64_t evicted = 0;      // Closed to make room for a new connection.
    int64_t turned_away = 0;  // Refused because there was no room.
    int64_t failed = 0;       // Closed because a descriptor or memory was missing.
  };
  virtual Counts counts() const = 0;
  // Returns where the last connection came from that ended before it proved who it is, and why, as
  // in "10.0.0.2: its certificate has expired". "" if there was none in the last 30 s, or if that
  // source has proved who it is since.
  virtual std::string last_refusal() const = 0;
};

}  // namespace muster::rpc
