// A Session is the coordinator's end of one member's session stream. It queues outgoing messages
// and calls a handler for each incoming one. It needs no thread of its own.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/credentials.h"
#include "proto/coordinator.grpc.pb.h"

namespace muster::chief {

class Session final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Receives the events of sessions, on gRPC's threads. Calls for one session never overlap. The
  // methods may call Send, Close and Kill. Must outlive the server.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(const std::shared_ptr<Session>& session,
                           const proto::MemberMessage& message) = 0;
    // The stream has ended, by either side. No call for this session follows.
    virtual void OnBroken(const std::shared_ptr<Session>& session) = 0;
  };

  // The session lives until its stream has ended and no caller holds the pointer.
  static std::shared_ptr<Session> Make(Handler* handler, grpc::CallbackServerContext* context);
  // Starts to read, so the handler may be called. Called once, before the reactor is returned to
  // gRPC.
  void Begin() { StartRead(&incoming_); }

  // An encoded message, which many sessions can send without encoding it again.
  using Message = std::shared_ptr<const grpc::ByteBuffer>;
  static Message Encode(const proto::CoordinatorMessage& message);

  // Thread-safe. Has no effect on a session that has ended.
  void Send(Message message);
  void Send(const proto::CoordinatorMessage& message) { Send(Encode(message)); }
  // Sends only if no other message is queued or being sent. For pulses.
  void SendIfIdle(Message message);
  // Ends the stream once all queued messages are sent.
  void Close() { Close(grpc::Status::OK); }
  // Does the same. The client receives `status`.
  void Close(const grpc::Status& status);
  // Cancels the stream at once.
  void Kill();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  // Returns the identity in the client's certificate; nullopt on a plaintext connection.
  const std::optional<security::Peer>& caller() const { return caller_; }

  // Used only by the handler and guarded by the handler's mutex.
  int member = -1;
  bool broken = false;

 private:
  Session(Handler* handler, grpc::CallbackServerContext* context)
      : handler_(handler), caller_(rpc::CallerOf(*context)), context_(context) {}
  grpc::Status TakeMessage();
  void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the stream's final status if the stream can be finished now, else nullopt. The caller
  // must pass the status to Finish after releasing mu_.
  std::optional<grpc::Status> ToFinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Handler* const handler_;
  const std::optional<security::Peer> caller_;
  std::shared_ptr<Session> self_;  // Keeps this object alive until OnDone.
  grpc::ByteBuffer incoming_;      // The message being read.
  bool first_ = true;              // The message being read is the first one.

  absl::Mutex mu_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);  // Null once finished.
  std::deque<Message> queue_ ABSL_GUARDED_BY(mu_);
  Message outgoing_ ABSL_GUARDED_BY(mu_);  // The message being written.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool read_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::chief
