// A channel that is replaced by a new one to the same address for each attempt to reach a peer that
// is away. gRPC's own retries have two problems. It times them by the wall clock, so a clock set
// back by an hour stops them for an hour. It does not watch a channel's sockets between calls, so a
// refused attempt counts as in progress until its timeout. The first attempt of a new channel
// depends on no clock, and its call watches the sockets.
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
  // Replaces the channel and returns the previous one, on which current calls continue. The caller
  // must not drop the last reference to a channel on gRPC's threads. Keeps the channel if none can
  // be made (the TLS files are gone).
  std::shared_ptr<grpc::Channel> Renew();

 private:
  RenewableChannel(std::string address, ChannelOptions options);

  const std::string address_;
  const ChannelOptions options_;
  mutable absl::Mutex mu_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::rpc
