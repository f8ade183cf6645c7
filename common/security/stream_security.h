// The interface through which data connections (common/transport) create TLS 1.3 sessions. Both
// sides of a session present certificates. The implementation, Identity (identity.h), holds the key
// and the trusted certificates. The caller runs the handshake.
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
  std::string cluster;  // The digest of the peer's cluster (ClusterSpec::Digest).
  std::string task;     // "worker:1", or "launcher".
};

// Thread-safe.
class StreamSecurity {
 public:
  virtual ~StreamSecurity() = default;
  // Returns a TLS session for one new connection, with this process's current certificate and
  // trusted authorities. The caller must set the socket of the session. `address` is the
  // "host:port" that a client dials. If the client has an earlier session with this address, the
  // new session resumes the earlier session. A server passes "".
  virtual absl::StatusOr<SslPtr> NewSession(bool server, const std::string& address) = 0;
  // Returns the identity of the peer after a handshake. If the peer is refused, returns an error
  // whose message is the reason, in one sentence.
  virtual absl::StatusOr<Peer> PeerOf(const SSL& session) = 0;
};

}  // namespace muster::security
