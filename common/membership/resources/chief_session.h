// Opens a member's sessions with the coordinator, one after another. A session is a gRPC stream.
// The coordinator is the part of the chief that watches all members. ChiefSession computes the time
// to wait (back-off) between two sessions.
//
// Thread-safe. The callbacks run on gRPC's threads, one at a time. ChiefSession holds no lock
// during a callback.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/base/wait.h"
#include "common/membership/state_machine/member_events.h"
#include "common/rpc/renewable_channel.h"
#include "common/rpc/retry.h"
#include "common/session/session_client.h"

namespace muster::membership {

class ChiefSession {
 public:
  struct Callbacks {
    std::function<void(const proto::CoordinatorMessage&)> on_message;
    std::function<void(SessionClosed)> on_closed;
  };
  // `seed` is the seed of the random part of the back-off.
  ChiefSession(std::shared_ptr<rpc::RenewableChannel> channel, rpc::RetryPolicy retry,
               uint64_t seed, Callbacks callbacks);
  // REQUIRES: Close() has returned, or Open() was never called.
  ~ChiefSession() = default;

  // Opens a session on a new channel and sends `hello`. REQUIRES: this is the first session, or
  // on_closed was called for the previous session.
  void Open(proto::Hello hello);
  // Send and Cancel have no effect if no session is open.
  void Send(proto::Report report);
  void Cancel();
  // Resets the back-off to its first delay. Called when the chief has answered.
  void Reached();
  // Frees the sessions that have closed. Must not be called on gRPC's threads, because DropClosed
  // may destroy a channel.
  void DropClosed();
  // Ends the session and blocks until on_closed has returned. If the session has not ended after
  // the time `patience`, cancels the session.
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
  std::shared_ptr<SessionClient> session_ ABSL_GUARDED_BY(mu_);  // Null if no session is open.
  bool opened_ ABSL_GUARDED_BY(mu_) = false;   // True after the first call of Open().
  bool closing_ ABSL_GUARDED_BY(mu_) = false;  // True while on_closed is running.
  std::vector<Closed> closed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::membership
