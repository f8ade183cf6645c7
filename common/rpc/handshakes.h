// Finds out why handshakes of gRPC's connections fail, which gRPC does not report. OpenSSL calls
// back for every new session, including gRPC's, and for each message on it. The side that refuses
// knows the reason. gRPC 1.51 sends no alert, so the other side only knows when the connection
// ended. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::rpc {

// The note of one incoming connection.
class HandshakeNote {
 public:
  // Sets the reason. Later calls have no effect.
  void Set(std::string why);
  // Sets the reason that `why` returns if the connection ends now.
  void SetMeanwhile(std::string why);
  // Returns a sentence, "it shows no certificate", or "" if nothing is known.
  std::string why() const;

 private:
  mutable absl::Mutex mu_;
  std::string why_ ABSL_GUARDED_BY(mu_), meanwhile_ ABSL_GUARDED_BY(mu_);
};

// While it exists, new sessions on this thread belong to the connection of this note.
class HandshakeOf {
 public:
  explicit HandshakeOf(std::shared_ptr<HandshakeNote> note);
  ~HandshakeOf();
  HandshakeOf(const HandshakeOf&) = delete;
  HandshakeOf& operator=(const HandshakeOf&) = delete;

 private:
  const std::shared_ptr<HandshakeNote> note_;
};

// Returns a name that a channel to this server uses in its handshakes
// (GRPC_SSL_TARGET_NAME_OVERRIDE_ARG). It identifies a session as that channel's and means nothing
// to others. One per server. From then on its failures are logged, at most one line in 10 s.
std::string HandshakeNameOf(const std::string& address, const std::string& task);
// Also logs this failure, unless a line was just logged. This side ends the connection.
void LogHandshake(std::string_view name, std::string_view why);

}  // namespace muster::rpc
