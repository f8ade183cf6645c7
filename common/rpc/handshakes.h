// Why handshakes of gRPC's connections fail, which gRPC keeps to itself. OpenSSL tells of each
// session that is made, gRPC's too, and of the messages that pass on it. A side that refuses knows
// why; gRPC 1.51 sends no alert, so that the other one knows no more than when that was. All of it
// may be called from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::rpc {

// Of one connection that came in.
class HandshakeNote {
 public:
  // The first one stays.
  void Set(std::string why);
  // What `why` says if it ends now.
  void SetMeanwhile(std::string why);
  // A sentence, "it shows no certificate"; "" where nothing is known.
  std::string why() const;

 private:
  mutable absl::Mutex mu_;
  std::string why_ ABSL_GUARDED_BY(mu_), meanwhile_ ABSL_GUARDED_BY(mu_);
};

// While it lives, sessions that are made on this thread belong to the connection of this note.
class HandshakeOf {
 public:
  explicit HandshakeOf(std::shared_ptr<HandshakeNote> note);
  ~HandshakeOf();
  HandshakeOf(const HandshakeOf&) = delete;
  HandshakeOf& operator=(const HandshakeOf&) = delete;

 private:
  const std::shared_ptr<HandshakeNote> note_;
};

// A name that says nothing to others, which a channel to this server shows in its handshakes
// (GRPC_SSL_TARGET_NAME_OVERRIDE_ARG): by it a session is known as that channel's. One for each
// server. What goes wrong with it is logged from then on, a line in 10 s.
std::string HandshakeNameOf(const std::string& address, const std::string& task);
// Logs that as well, unless there was a line just now: this side ends the connection.
void LogHandshake(std::string_view name, std::string_view why);

}  // namespace muster::rpc
