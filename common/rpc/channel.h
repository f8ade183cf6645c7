// gRPC channels as every part of Muster opens them. Nothing blocks here: a channel connects with
// its first call.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/rpc/credentials.h"
#include "common/rpc/retry.h"
#include "muster/status.h"

namespace muster::rpc {

// Both ends of a connection derive from these, so that a server's minimum ping interval always
// lies below its clients' keepalive (else: GOAWAY, too_many_pings).
inline constexpr Duration kKeepalive = std::chrono::seconds(10);
inline constexpr Duration kKeepaliveTimeout = std::chrono::seconds(5);
inline constexpr Duration kMinPingInterval = std::chrono::seconds(5);

// What a server sends to its peers. A roster of thousands of members is well below 1 MB, a job file
// too.
inline constexpr int kMaxMessageBytes = 16 << 20;
// What a server takes from whoever calls: what is larger travels in pieces.
inline constexpr int kMaxRequestBytes = 1 << 20;
// Of a piece, beside which its message has room for names and numbers.
inline constexpr int kMaxPieceBytes = kMaxRequestBytes - (64 << 10);

struct ChannelOptions {
  RetryPolicy retry;
  Duration connect_timeout = std::chrono::seconds(2);  // of one attempt
  std::shared_ptr<security::Identity> identity;        // null: plaintext
  std::string
      server_task;  // whom the server has to be, "chief:0"; none is refused with an identity
};

// A channel to "host:port" that never goes through an HTTP proxy (http_proxy and friends are for
// the outside world; cluster addresses are not), asks DNS again quickly, and shares its connection
// with no other channel.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const ChannelOptions& options = {});

// Every unary call has one of these.
std::unique_ptr<grpc::ClientContext> WithDeadline(Duration timeout);

}  // namespace muster::rpc
