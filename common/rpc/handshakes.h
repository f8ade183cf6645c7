// Finds and logs the reasons of failed TLS handshakes of gRPC connections, because gRPC does not
// report these reasons. The code observes handshakes through OpenSSL callbacks. Only the side that
// refuses a handshake knows the exact reason. gRPC 1.51 sends no TLS alert. The other side
// therefore infers the reason from the point at which the connection ended. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::rpc {

// The reason why the handshake of one incoming connection failed.
class HandshakeNote {
 public:
  // Sets the reason. Only the first call has an effect.
  void Set(std::string why);
  // Sets the presumed reason, which why() returns until Set is called.
  void SetProvisional(std::string why);
  // Returns a sentence ("it shows no certificate"), or "" if no reason is known.
  std::string why() const;

 private:
  mutable absl::Mutex mu_;
  std::string why_ ABSL_GUARDED_BY(mu_), meanwhile_ ABSL_GUARDED_BY(mu_);
};

// While a HandshakeOf exists, TLS sessions that this thread creates are attributed to one
// incoming connection. If the handshake of one of these sessions fails, the reason is stored in
// `note`. If `note` is null, the sessions are treated like sessions of outgoing connections
// (channels).
class HandshakeOf {
 public:
  explicit HandshakeOf(std::shared_ptr<HandshakeNote> note);
  ~HandshakeOf();
  HandshakeOf(const HandshakeOf&) = delete;
  HandshakeOf& operator=(const HandshakeOf&) = delete;

 private:
  const std::shared_ptr<HandshakeNote> note_;
};

// Returns a name for the server of `task` at `address`. Channels to the server send the name in the
// handshake (GRPC_SSL_TARGET_NAME_OVERRIDE_ARG), so that the OpenSSL callbacks can find the server
// of a TLS session. The server itself ignores the name. Equal arguments give the same name. After
// this call, failed handshakes with the server are logged, with at most one line in 10 s.
std::string HandshakeNameOf(const std::string& address, const std::string& task);
// If the latest handshake with the server failed in the last 20 s, returns the reason. Otherwise
// returns "".
std::string FailedHandshake(const std::string& address, const std::string& task);
// Logs that this side refused the handshake with the server of `name`. HandshakeNameOf's limit of
// one line in 10 s includes these lines.
void LogHandshake(std::string_view name, std::string_view why);

}  // namespace muster::rpc
