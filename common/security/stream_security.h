// Encrypts a data connection and authenticates its peer: TLS 1.3 with certificates of both sides.
// The transport runs the handshake. The implementation has the keys and the trusted certificates.
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
  std::string cluster;  // Digest of its cluster spec.
  std::string task;     // "worker:1"; "launcher".
};

// Thread-safe.
class StreamSecurity {
 public:
  virtual ~StreamSecurity() = default;
  // Returns a session for one new connection, in the accept or the connect state, with this
  // process's current certificate and trust. The caller gives it a socket. `address` is the peer's
  // "host:port" as a client dials it, by which a session is resumed. It is empty for a server.
  virtual absl::StatusOr<SslPtr> NewSession(bool server, const std::string& address) = 0;
  // Called after a handshake. Returns the peer's identity, or an error of one sentence that says
  // why it is refused.
  virtual absl::StatusOr<Peer> PeerOf(const SSL& session) = 0;
};

}  // namespace muster::security
