// A Session is the coordinator's end of the gRPC stream between the coordinator and one member (a
// task in training). It queues outgoing messages, and calls a handler for each incoming message. It
// needs no thread of its own.
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
  // Receives the events of all sessions, on gRPC's threads. Calls for the same session never
  // overlap. The methods may call Send, Close and Kill. A Handler must outlive the gRPC server.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(const std::shared_ptr<Session>& session,
                           const proto::MemberMessage& message) = 0;
    // Called when the stream has ended, or after an invalid message. This is the last call for the
    // session.
    virtual void OnBroken(const std::shared_ptr<Session>& session) = 0;
  };

  // The session keeps itself alive until its stream has ended.
  static std::shared_ptr<Session> Make(Handler* handler, grpc::CallbackServerContext* context);
  // Starts to read. From this call on, the handler may be called. Called once, before the caller
  // returns the session to gRPC.
  void Begin() { StartRead(&incoming_); }

  // An encoded message. Several sessions can send the same Message.
  using Message = std::shared_ptr<const grpc::ByteBuffer>;
  static Message Encode(const proto::CoordinatorMessage& message);

  // Send, SendIfIdle, Close and Kill are thread-safe, and have no effect after the end of the
  // stream.
  //
  // Queues `message`. Does not block.
  void Send(Message message);
  void Send(const proto::CoordinatorMessage& message) { Send(Encode(message)); }
  // Sends `message` if no other message is queued or being sent. Used for pulses, the coordinator's
  // answers to reports.
  void SendIfIdle(Message message);
  // Ends the stream once all queued messages are sent. The member receives the status OK.
  void Close() { Close(grpc::Status::OK); }
  // Like Close(), but the member receives `status`.
  void Close(const grpc::Status& status);
  // Cancels the stream at once.
  void Kill();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  // Returns the identity in the client's certificate; nullopt on a plaintext connection.
  const std::optional<security::Peer>& caller() const { return caller_; }

  // Only the handler uses these two fields. The handler's mutex guards them.
  int member = -1;
  bool broken = false;

 private:
  Session(Handler* handler, grpc::CallbackServerContext* context)
      : handler_(handler), caller_(rpc::CallerOf(*context)), context_(context) {}
  grpc::Status TakeMessage();
  void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the final status if the stream can be finished now, else nullopt. The caller must pass
  // this status to Finish after it has released mu_.
  std::optional<grpc::Status> ToFinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Handler* const handler_;
  const std::optional<security::Peer> caller_;
  std::shared_ptr<Session> self_;  // Keeps this object alive until OnDone.
  grpc::ByteBuffer incoming_;      // The message being read.
  bool first_ = true;              // True until the first message was read.

  absl::Mutex mu_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);  // Null once finished_.
  std::deque<Message> queue_ ABSL_GUARDED_BY(mu_);
  Message outgoing_ ABSL_GUARDED_BY(mu_);  // The message being written.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool read_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::chief
