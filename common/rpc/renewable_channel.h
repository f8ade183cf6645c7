// A channel in whose place another one to the same address is put for each try to reach somebody
// who is away, instead of leaving the tries to gRPC. gRPC waits between them by the wall clock: one
// that goes back by an hour stops them for an hour. And nobody looks at a channel's sockets between
// calls: an attempt that is refused then counts as under way until its time is over. A new
// channel's first attempt needs no clock, and the call that it is for looks at it.
//
// All methods may be called from any thread.
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
  // Calls under way stay on the one before, which is returned: the last reference to a channel must
  // not go on gRPC's threads. Where none can be made (the files for TLS are gone) that one stays.
  std::shared_ptr<grpc::Channel> Renew();

 private:
  RenewableChannel(std::string address, ChannelOptions options);

  const std::string address_;
  const ChannelOptions options_;
  mutable absl::Mutex mu_;
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::rpc
