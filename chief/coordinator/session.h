// The coordinator's end of one member's session stream: a queue of messages out, a callback for
// each message in. Costs no thread.
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

namespace muster {

class Session final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Called on gRPC's threads, one at a time for one session; may call Send and the like. Must
  // outlive the server.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(const std::shared_ptr<Session>& session,
                           const proto::MemberMessage& message) = 0;
    // The stream has ended, whoever ended it. The last call.
    virtual void OnBroken(const std::shared_ptr<Session>& session) = 0;
  };

  // The session lives as long as its stream, or as long as anybody holds it.
  static std::shared_ptr<Session> Make(Handler* handler, grpc::CallbackServerContext* context);
  // From here on the handler is called. Once, before the reactor is handed to gRPC.
  void Begin() { StartRead(&incoming_); }

  // Encoded: many sessions share one, and none of them encodes it again.
  using Message = std::shared_ptr<const grpc::ByteBuffer>;
  static Message Encode(const proto::CoordinatorMessage& message);

  // Any thread. No effect on a session that has ended.
  void Send(Message message);
  void Send(const proto::CoordinatorMessage& message) { Send(Encode(message)); }
  // Sends only if nothing else waits to be sent: for pulses.
  void SendIfIdle(Message message);
  // Ends the stream after what was sent before.
  void Close() { Close(grpc::Status::OK); }
  // The same with an error, of which the client's end of the stream learns.
  void Close(const grpc::Status& status);
  // Ends it now.
  void Kill();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  // As its certificate says; nullopt on a plaintext connection.
  const std::optional<security::Peer>& caller() const { return caller_; }

  // The handler's, guarded by what guards its own state.
  int member = -1;
  bool broken = false;

 private:
  Session(Handler* handler, grpc::CallbackServerContext* context)
      : handler_(handler), caller_(rpc::CallerOf(*context)), context_(context) {}
  grpc::Status TakeMessage();
  void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The status with which the caller has to call Finish, without mu_; unset: not yet.
  std::optional<grpc::Status> ToFinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Handler* const handler_;
  const std::optional<security::Peer> caller_;
  std::shared_ptr<Session> self_;  // until OnDone
  grpc::ByteBuffer incoming_;      // of the read under way
  bool first_ = true;              // it is the first one

  absl::Mutex mu_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);  // null once finished
  std::deque<Message> queue_ ABSL_GUARDED_BY(mu_);
  Message outgoing_ ABSL_GUARDED_BY(mu_);  // of the write under way
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool read_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
