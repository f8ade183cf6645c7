// A member's side of its session stream with the coordinator. Uses no thread of its own. Callbacks
// run on gRPC's threads, one at a time.
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
  // The caller keeps its reference until on_closed and drops it on a thread of its own. The last
  // reference may destroy the channel, and a channel destroyed on gRPC's thread would wait for that
  // thread.
  static std::shared_ptr<SessionClient> Open(proto::Coordinator::Stub* stub, proto::Hello hello,
                                             Callbacks callbacks);

  // Thread-safe. Keeps only the newest unsent report, because a report has the whole state.
  void Send(proto::Report report);
  // Ends the stream from this side after pending messages were sent.
  void Leave();
  // Ends the stream now.
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  explicit SessionClient(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}
  void WriteNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes outside gRPC's callbacks need a hold on the stream, which is released once.
  void ReleaseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Callbacks callbacks_;
  grpc::ClientContext context_;
  proto::CoordinatorMessage incoming_;  // The message of the current read.

  absl::Mutex mu_;
  std::optional<proto::MemberMessage> next_ ABSL_GUARDED_BY(mu_);
  proto::MemberMessage outgoing_ ABSL_GUARDED_BY(mu_);  // The message of the current write.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // No more writes.
};

}  // namespace muster
