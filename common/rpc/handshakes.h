// Finds and logs the reasons of failed TLS handshakes of gRPC connections, because gRPC does not
// report them. These functions observe the handshakes through callbacks of OpenSSL. Only the side
// that refuses a handshake knows the exact reason. gRPC 1.51 sends no TLS alert. The other side
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

// Attributes TLS sessions to one incoming connection. These are the sessions that this thread
// creates while the HandshakeOf exists. If the handshake of such a session fails, the reason is
// stored in `note`. If `note` is null, the session is treated like a session of an outgoing
// connection (a channel).
class HandshakeOf {
 public:
  explicit HandshakeOf(std::shared_ptr<HandshakeNote> note);
  ~HandshakeOf();
  HandshakeOf(const HandshakeOf&) = delete;
  HandshakeOf& operator=(const HandshakeOf&) = delete;

 private:
  const std::shared_ptr<HandshakeNote> note_;
};

// Returns a name for the server of `task` at `address`. Channels to the server send the name in
// their handshakes (GRPC_SSL_TARGET_NAME_OVERRIDE_ARG). The OpenSSL callbacks find the server of a
// TLS session by this name. The server itself ignores the name. Equal arguments give the same name.
// After this call, this process logs failed handshakes with the server, at most one line in 10 s.
std::string HandshakeNameOf(const std::string& address, const std::string& task);
// Returns why the latest handshake with the server failed, if it failed in the last 20 s. Otherwise
// returns "".
std::string FailedHandshake(const std::string& address, const std::string& task);
// Logs that this side refused the handshake with the server of `name`. These lines count towards
// the limit of one line in 10 s.
void LogHandshake(std::string_view name, std::string_view why);

}  // namespace muster::rpc
