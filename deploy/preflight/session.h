// Session is a connection between two tasks for the comparison and the measurements of `muster
// preflight`. It starts on the port of a task with one plaintext line in each direction. If the
// tasks have a run key or certificates, mutual TLS follows and proves the task of each side. Then
// one side sends questions and the other side answers, one JSON object each. Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "common/base/files/fd.h"
#include "common/security/identity.h"
#include "common/transport/byte_stream.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster::preflight {

struct SessionOptions {
  std::string self;  // "worker:1"
  std::string cluster_digest;
  std::shared_ptr<security::Identity> identity;  // Null: sessions are plaintext.
};

class Session {
 public:
  static constexpr size_t kMaxMessage = size_t{4} << 20;

  // Returns whether `line` is the first line of a session.
  static bool Begins(const std::string& line);
  // Opens a session with `task` at `address`. If SessionOptions::identity is set, the other side
  // must prove that it is `task`.
  static absl::StatusOr<std::unique_ptr<Session>> Dial(const SessionOptions& options,
                                                       const std::string& task,
                                                       const std::string& address,
                                                       MonotonicTime until);
  // Accepts a session. `line` is the first line, which the caller has already read.
  static absl::StatusOr<std::unique_ptr<Session>> Accept(const SessionOptions& options, Fd socket,
                                                         const std::string& line,
                                                         MonotonicTime until);

  // Returns the other side's task, such as "worker:1".
  const std::string& peer() const { return peer_; }
  // Sends a question and returns the answer. Returns PeerLost for an answer of the form {"error":
  // ...}.
  absl::StatusOr<Json> Ask(const Json& question, MonotonicTime until);

  absl::Status Send(const Json& message, MonotonicTime until);
  absl::StatusOr<Json> Receive(MonotonicTime until);
  // Returns the descriptor to poll for messages. If Buffered returns true, a message may already
  // have arrived.
  int fd() const { return stream_->fd(); }
  bool Buffered() const { return stream_->Buffered(); }

 private:
  explicit Session(std::unique_ptr<transport::ByteStream> stream) : stream_(std::move(stream)) {}
  absl::Status Secure(const SessionOptions& options, bool server, const std::string& address,
                      MonotonicTime until);
  absl::Status Wait(bool read, MonotonicTime until) const;
  absl::Status ReadAll(char* bytes, size_t size, MonotonicTime until);
  absl::Status WriteAll(const char* bytes, size_t size, MonotonicTime until);

  std::unique_ptr<transport::ByteStream> stream_;
  std::string peer_;
};

}  // namespace muster::preflight
