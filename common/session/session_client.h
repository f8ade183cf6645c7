// The member's side of a session. A session is the gRPC stream between a member (a chief, worker or
// ps task) and the coordinator. The coordinator runs in the chief. SessionClient has no thread. Its
// callbacks run on gRPC's threads, one at a time.
#pragma once

#include <grpcpp/support/client_callback.h>

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/coordinator.grpc.pb.h"

namespace muster {

class SessionClient final
    : public grpc::ClientBidiReactor<proto::MemberMessage, proto::CoordinatorMessage> {
 public:
  struct Callbacks {
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    std::function<void(const grpc::Status&)> on_closed;  // The last callback.
  };

  // Opens the stream and sends `hello`. Objects that the callbacks use must live until on_closed.
  // The caller must keep the result until on_closed. The caller must not release the result on a
  // thread of gRPC. The release may destroy the channel, and the destructor of a channel waits for
  // gRPC's threads.
  static std::shared_ptr<SessionClient> Open(proto::Coordinator::Stub* stub, proto::Hello hello,
                                             Callbacks callbacks);

  // Sends a report. Drops an older report that is not sent yet, because each report contains the
  // whole state of the member. Thread-safe.
  void Send(proto::Report report);
  // Ends the stream after the pending messages are sent.
  void Leave();
  // Ends the stream immediately.
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  explicit SessionClient(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}
  void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the gRPC hold from the stream. Only the first call has an effect. gRPC requires a hold
  // for writes outside its callbacks.
  void ReleaseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Callbacks callbacks_;
  grpc::ClientContext context_;
  proto::CoordinatorMessage incoming_;  // The message of the current read.

  absl::Mutex mu_;
  std::optional<proto::MemberMessage> next_ ABSL_GUARDED_BY(mu_);
  proto::MemberMessage outgoing_ ABSL_GUARDED_BY(mu_);  // The message of the current write.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // True when no more writes are possible.
};

}  // namespace muster
