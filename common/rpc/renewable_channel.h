// A replaceable gRPC channel to one address. Callers call Renew before each new attempt to reach an
// unreachable peer, because gRPC's own reconnects have two problems:
// - gRPC times reconnects by the wall clock. If the clock is set back by an hour, gRPC does not
//   reconnect for an hour.
// - gRPC does not watch sockets between calls. A refused attempt to connect therefore appears to be
//   in progress until its timeout.
// A new channel has neither problem. The new channel connects at once when a call starts, and the
// call watches the sockets.
//
// Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/channel.h"

namespace muster::rpc {

class RenewableChannel {
 public:
  static absl::StatusOr<std::shared_ptr<RenewableChannel>> Make(std::string address,
                                                                ChannelOptions options);

  std::shared_ptr<grpc::Channel> Get() const;
  // Replaces the channel and returns the previous channel. Running calls continue on the previous
  // channel. The caller must not release the last reference to a channel on a thread of gRPC,
  // because the destructor of the channel waits for gRPC's threads. If no new channel can be made,
  // for example because of missing TLS files, returns the current channel and keeps it.
  std::shared_ptr<grpc::Channel> Renew();
  // Returns why the server is unreachable. `status` is the status of a failed call. Unlike gRPC's
  // error message, the result contains the reason of a failed TLS handshake. REQUIRES:
  // IsUnreachable(status).
  std::string Why(const grpc::Status& status) const;

 private:
  RenewableChannel(std::string address, ChannelOptions options);

  const std::string address_;
  const ChannelOptions options_;
  mutable absl::Mutex mu_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::rpc
