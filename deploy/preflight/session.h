// Session is a connection between two tasks on which `muster preflight` compares and measures. It
// starts on the port of a task with one plaintext line in each direction. If the tasks have a run
// key or certificates, TLS with certificates of both sides follows, and each side knows which task
// the other one is. Then one side asks and the other one answers, one JSON object for each
// question. One thread at a time uses a session.
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

  // Returns whether a connection that begins with `line` wants to be a session.
  static bool Begins(const std::string& line);
  // Opens a session with `task`, which must prove that it is that task if there is an identity.
  static absl::StatusOr<std::unique_ptr<Session>> Dial(const SessionOptions& options,
                                                       const std::string& task,
                                                       const std::string& address,
                                                       MonotonicTime until);
  // Accepts a session. `line` is what the other side has sent so far.
  static absl::StatusOr<std::unique_ptr<Session>> Accept(const SessionOptions& options, Fd socket,
                                                         const std::string& line,
                                                         MonotonicTime until);

  // The other side's task, "worker:1".
  const std::string& peer() const { return peer_; }
  // Sends a question and returns the answer. An answer of the form {"error": ...} is a PeerLost.
  absl::StatusOr<Json> Ask(const Json& question, MonotonicTime until);

  absl::Status Send(const Json& message, MonotonicTime until);
  absl::StatusOr<Json> Receive(MonotonicTime until);
  // For poll, to wait for a message. If Buffered returns true, a message may be there already.
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
