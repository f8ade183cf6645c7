// Creates gRPC channels with Muster's settings. No function blocks: a channel connects when its
// first call starts.
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

// Keepalive settings of all channels and servers. kMinPingInterval is the shortest ping interval
// that a server permits. kMinPingInterval must be below kKeepalive. If pings arrive at shorter
// intervals than kMinPingInterval, a server answers with GOAWAY (too_many_pings).
inline constexpr Duration kKeepalive = std::chrono::seconds(10);
inline constexpr Duration kKeepaliveTimeout = std::chrono::seconds(5);
inline constexpr Duration kMinPingInterval = std::chrono::seconds(5);

// The maximum size of a message from a server.
inline constexpr int kMaxMessageBytes = 16 << 20;
// The maximum size of a request to a server. Callers send larger data in pieces.
inline constexpr int kMaxRequestBytes = 1 << 20;
// The maximum size of one piece. The rest of kMaxRequestBytes is for other fields of the request.
inline constexpr int kMaxPieceBytes = kMaxRequestBytes - (64 << 10);

struct ChannelOptions {
  RetryPolicy retry;
  Duration connect_timeout = std::chrono::seconds(2);  // For each attempt to connect.
  std::shared_ptr<security::Identity> identity;        // Null: plaintext.
  // The task that the server's certificate must name ("chief:0"). Required with an identity.
  std::string server_task;
};

// Returns a channel to `address`, "host:port". The channel ignores http_proxy and similar
// environment variables, because these are for addresses outside the cluster. The channel repeats a
// failed DNS query after at most `options.retry.max`. Channels do not share connections.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const ChannelOptions& options = {});

// Returns a context with a deadline `timeout` from now. Muster's servers refuse unary calls without
// a deadline.
std::unique_ptr<grpc::ClientContext> WithDeadline(Duration timeout);

}  // namespace muster::rpc
