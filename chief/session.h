// The coordinator's end of one member's session stream: a queue of messages out, a callback for
// each message in. Costs no thread.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/coordinator.grpc.pb.h"

namespace muster {

class Session final
    : public grpc::ServerBidiReactor<proto::MemberMessage, proto::CoordinatorMessage> {
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
  static Session* Open(Handler* handler, grpc::CallbackServerContext* context);

  using Message = std::shared_ptr<const proto::CoordinatorMessage>;  // many sessions may share one

  // Any thread. No effect on a session that has ended.
  void Send(Message message);
  void Send(proto::CoordinatorMessage message) {
    Send(std::make_shared<proto::CoordinatorMessage>(std::move(message)));
  }
  // Sends only if nothing else waits to be sent: for pulses.
  void SendIfIdle(Message message);
  // Ends the stream after what was sent before.
  void Close();
  // Ends it now.
  void Kill();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  int member = -1;  // the handler's, guarded by what guards its own state

 private:
  Session(Handler* handler, grpc::CallbackServerContext* context)
      : handler_(handler), context_(context) {}
  void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the caller has to call Finish, without mu_.
  bool ShouldFinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Handler* const handler_;
  std::shared_ptr<Session> self_;  // until OnDone
  proto::MemberMessage incoming_;  // of the read under way

  absl::Mutex mu_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);  // null once finished
  std::deque<Message> queue_ ABSL_GUARDED_BY(mu_);
  Message outgoing_ ABSL_GUARDED_BY(mu_);  // of the write under way
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool read_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace muster
