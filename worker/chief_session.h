// A member's sessions with the coordinator, one after another, and the back-off between them.
//
// All methods may be called from any thread; the callbacks come on gRPC's threads, one at a time,
// without a lock of this class.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/base/wait.h"
#include "common/rpc/renewable_channel.h"
#include "common/rpc/retry.h"
#include "worker/member_events.h"
#include "worker/session_client.h"

namespace muster {

class ChiefSession {
 public:
  struct Callbacks {
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    std::function<void(membership::SessionClosed)> on_closed;
  };
  ChiefSession(std::shared_ptr<rpc::RenewableChannel> channel, rpc::RetryPolicy retry,
               uint64_t seed, Callbacks callbacks);
  // REQUIRES: Close() has returned, or none was opened.
  ~ChiefSession() = default;

  // Each on a channel of its own. REQUIRES: none is open: on_closed came for the one before.
  void Open(proto::Hello hello);
  void Send(proto::Report report);
  void Cancel();
  // The chief was reached: the back-off begins again.
  void Reached();
  // Lets closed sessions go. Not on gRPC's threads: the last one may take the channel with it.
  void DropClosed();
  // Leaves, and returns once on_closed has: a session that does not end within `patience` is
  // cancelled.
  void Close(Duration patience);

 private:
  void OnClosed(const grpc::Status& status);

  struct Closed {
    std::shared_ptr<SessionClient> session;
    std::shared_ptr<grpc::Channel> channel;
  };

  const std::shared_ptr<rpc::RenewableChannel> channel_;
  const Callbacks callbacks_;
  absl::Mutex mu_;
  CondVar changed_;
  rpc::Backoff backoff_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<SessionClient> session_ ABSL_GUARDED_BY(mu_);  // null: none is open
  bool opened_ ABSL_GUARDED_BY(mu_) = false;                     // the first one
  bool closing_ ABSL_GUARDED_BY(mu_) = false;                    // on_closed is under way
  std::vector<Closed> closed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
