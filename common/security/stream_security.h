// What makes a data connection private and tells who is at its other end: TLS 1.3 with certificates
// of both sides. The transport drives the handshake; whoever made this knows keys and trust.
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

// Whom a peer's certificate names.
struct Peer {
  std::string cluster;  // digest of its cluster spec
  std::string task;     // "worker:1"; "launcher"
};

// May be called from any thread.
class StreamSecurity {
 public:
  virtual ~StreamSecurity() = default;
  // A session for one new connection, in the accept or the connect state, with this process's
  // present certificate and trust. The caller gives it a socket. `address` is the peer's
  // "host:port" as a client dials it, by which a session is resumed; empty for a server.
  virtual absl::StatusOr<SslPtr> NewSession(bool server, const std::string& address) = 0;
  // After a handshake: who the peer is, or one sentence why it is refused.
  virtual absl::StatusOr<Peer> PeerOf(const SSL& session) = 0;
};

}  // namespace muster::security
