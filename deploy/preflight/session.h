// PeerSession is a TCP connection between two tasks for the comparison and the measurements of
// `muster preflight`. A session begins with one plaintext line in each direction, on the port of
// the called task. If the tasks have a run key or certificates (docs/security.md), mutual TLS
// follows and proves which task is on each side. After that, the calling task sends questions and
// the called task answers. Each question and each answer is one JSON object. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "common/base/files/fd.h"
#include "common/security/identity.h"
#include "common/transport/byte_stream.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::preflight {

struct PeerSessionOptions {
  std::string self;  // "worker:1"
  std::string cluster_digest;
  std::shared_ptr<security::Identity> identity;  // Null: no TLS.
};

class PeerSession {
 public:
  static constexpr size_t kMaxMessage = size_t{4} << 20;

  // Returns true if `line` is the first line of a session.
  static bool Begins(const std::string& line);
  // Opens a session with `task` at `address`. With PeerSessionOptions::identity, returns an error
  // if the other side cannot prove that it is `task`.
  static absl::StatusOr<std::unique_ptr<PeerSession>> Dial(const PeerSessionOptions& options,
                                                           const std::string& task,
                                                           const std::string& address,
                                                           MonotonicTime until);
  // Accepts a session on `socket`. `line` is the first line, which has already been read.
  static absl::StatusOr<std::unique_ptr<PeerSession>> Accept(const PeerSessionOptions& options,
                                                             Fd socket, const std::string& line,
                                                             MonotonicTime until);

  // Returns the other side's task, such as "worker:1".
  const std::string& peer() const { return peer_; }
  // Sends a question and returns the answer. Returns PeerLost if the answer is {"error": ...}.
  absl::StatusOr<Json> Ask(const Json& question, MonotonicTime until);

  absl::Status Send(const Json& message, MonotonicTime until);
  absl::StatusOr<Json> Receive(MonotonicTime until);
  // Returns the descriptor to poll for messages. If Buffered returns true, call Receive without
  // polling, because bytes of a message have already been read from the descriptor.
  int fd() const { return stream_->fd(); }
  bool Buffered() const { return stream_->Buffered(); }

 private:
  explicit PeerSession(std::unique_ptr<transport::ByteStream> stream)
      : stream_(std::move(stream)) {}
  absl::Status Secure(const PeerSessionOptions& options, bool server, const std::string& address,
                      MonotonicTime until);
  absl::Status Wait(bool read, MonotonicTime until) const;
  absl::Status ReadAll(char* bytes, size_t size, MonotonicTime until);
  absl::Status WriteAll(const char* bytes, size_t size, MonotonicTime until);

  std::unique_ptr<transport::ByteStream> stream_;
  std::string peer_;
};

}  // namespace muster::preflight
