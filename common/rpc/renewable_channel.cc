#include "common/rpc/renewable_channel.h"

#include <utility>

#include "common/base/logging.h"
#include "common/rpc/handshakes.h"
#include "common/rpc/retry.h"

namespace muster::rpc {

RenewableChannel::RenewableChannel(std::string address, ChannelOptions options)
    : address_(std::move(address)), options_(std::move(options)) {}

absl::StatusOr<std::shared_ptr<RenewableChannel>> RenewableChannel::Make(std::string address,
                                                                         ChannelOptions options) {
  std::shared_ptr<RenewableChannel> renewable(
      new RenewableChannel(std::move(address), std::move(options)));
  MUSTER_ASSIGN_OR_RETURN(auto channel, MakeChannel(renewable->address_, renewable->options_));
  absl::MutexLock lock(&renewable->mu_);
  renewable->channel_ = std::move(channel);
  return renewable;
}

std::shared_ptr<grpc::Channel> RenewableChannel::Get() const {
  absl::MutexLock lock(&mu_);
  return channel_;
}

std::shared_ptr<grpc::Channel> RenewableChannel::Renew() {
  auto made = MakeChannel(address_, options_);
  if (!made.ok()) LogDebug("no new channel to {}: {}", address_, Message(made.status()));
  absl::MutexLock lock(&mu_);
  return made.ok() ? std::exchange(channel_, *std::move(made)) : channel_;
}

std::string RenewableChannel::Why(const grpc::Status& status) const {
  const std::string handshake = FailedHandshake(address_, options_.server_task);
  return handshake.empty() ? WhyUnreachable(status) : handshake;
}

}  // namespace muster::rpc
