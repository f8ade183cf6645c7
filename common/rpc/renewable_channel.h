// A gRPC channel to one address that its user can replace by a new one (Renew). Callers replace it
// before each attempt to reach an unreachable peer, because gRPC's own reconnects have two
// problems. First, gRPC times reconnects by the wall clock, so a clock that is set back by an hour
// stops them for an hour. Second, gRPC does not watch sockets between calls, so a refused attempt
// seems to be in progress until its timeout. A new channel has neither problem: its first attempt
// starts at once, and the call that caused it watches the sockets.
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
  // Replaces the channel and returns the previous one. Current calls continue on the previous one.
  // The caller must not drop the last reference to a channel on a thread of gRPC. Keeps the channel
  // if no new one can be made (for example, the TLS files are missing).
  std::shared_ptr<grpc::Channel> Renew();
  // Returns why the server is unreachable. `status` is that of a call, IsUnreachable. If the TLS
  // handshake failed, gRPC does not say why, and this does.
  std::string Why(const grpc::Status& status) const;

 private:
  RenewableChannel(std::string address, ChannelOptions options);

  const std::string address_;
  const ChannelOptions options_;
  mutable absl::Mutex mu_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::rpc
