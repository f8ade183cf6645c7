// The interface through which data connections (common/transport) get TLS 1.3 with certificates of
// both sides. The implementation has the keys and the trusted certificates. The caller runs the
// handshake.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "muster/status.h"

namespace muster::security {

struct SslDeleter {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
using SslPtr = std::unique_ptr<SSL, SslDeleter>;

// The identity in a peer's certificate.
struct Peer {
  std::string cluster;  // ClusterSpec::Digest of the peer's cluster.
  std::string task;     // "worker:1", or "launcher".
};

// Thread-safe.
class StreamSecurity {
 public:
  virtual ~StreamSecurity() = default;
  // Returns a TLS session for one new connection, with this process's current certificate and
  // trusted authorities. The caller sets its socket. A client passes the "host:port" that it dials
  // as `address`: the session resumes an earlier session with that address. A server passes "".
  virtual absl::StatusOr<SslPtr> NewSession(bool server, const std::string& address) = 0;
  // Returns the identity of the peer after a handshake. An error says in one sentence why the peer
  // is refused.
  virtual absl::StatusOr<Peer> PeerOf(const SSL& session) = 0;
};

}  // namespace muster::security
