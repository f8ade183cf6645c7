// Finds and logs the reasons of failed TLS handshakes of gRPC connections, which gRPC does not
// report. It observes the handshakes through callbacks of OpenSSL. Only the side that refuses a
// handshake knows the exact reason. gRPC 1.51 sends no alert, so the other side infers the reason
// from the point at which the connection ended. Thread-safe.
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
  // Sets the reason. Later calls have no effect.
  void Set(std::string why);
  // Sets the presumed reason, which why() returns until Set is called.
  void SetProvisional(std::string why);
  // Returns a sentence ("it shows no certificate"), or "" if no reason is known.
  std::string why() const;

 private:
  mutable absl::Mutex mu_;
  std::string why_ ABSL_GUARDED_BY(mu_), meanwhile_ ABSL_GUARDED_BY(mu_);
};

// While this object exists, TLS sessions that this thread creates belong to the connection of
// `note`. If `note` is null, they belong to channels.
class HandshakeOf {
 public:
  explicit HandshakeOf(std::shared_ptr<HandshakeNote> note);
  ~HandshakeOf();
  HandshakeOf(const HandshakeOf&) = delete;
  HandshakeOf& operator=(const HandshakeOf&) = delete;

 private:
  const std::shared_ptr<HandshakeNote> note_;
};

// Returns the name that channels to this server use in their handshakes
// (GRPC_SSL_TARGET_NAME_OVERRIDE_ARG). The name tells the callbacks which server a session is for.
// It has no meaning for the server. Equal arguments give the same name. After this call, failed
// handshakes with the server are logged, at most one line in 10 s.
std::string HandshakeNameOf(const std::string& address, const std::string& task);
// Returns why a handshake with the server failed in the last 20 s, "" if none did.
std::string FailedHandshake(const std::string& address, const std::string& task);
// Logs that this side refused the handshake with the server of `name`. Counts toward the same limit
// of one line in 10 s.
void LogHandshake(std::string_view name, std::string_view why);

}  // namespace muster::rpc
