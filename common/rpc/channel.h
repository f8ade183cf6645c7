// gRPC channels with the settings of all parts of Muster. Nothing here blocks: a channel connects
// with its first call.
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

// Both ends of a connection derive their settings from these. A server's minimum ping interval is
// thus always below its clients' keepalive. Otherwise servers would reply with GOAWAY
// (too_many_pings).
inline constexpr Duration kKeepalive = std::chrono::seconds(10);
inline constexpr Duration kKeepaliveTimeout = std::chrono::seconds(5);
inline constexpr Duration kMinPingInterval = std::chrono::seconds(5);

// Limit of a server's message to a peer. A roster of thousands of members is well below 1 MB, and
// so is a job file.
inline constexpr int kMaxMessageBytes = 16 << 20;
// Limit of a request to a server, from any caller. Larger data is sent in pieces.
inline constexpr int kMaxRequestBytes = 1 << 20;
// Limit of a piece. It leaves room for names and numbers in the message.
inline constexpr int kMaxPieceBytes = kMaxRequestBytes - (64 << 10);

struct ChannelOptions {
  RetryPolicy retry;
  Duration connect_timeout = std::chrono::seconds(2);  // Limit of one attempt.
  std::shared_ptr<security::Identity> identity;        // Null: plaintext.
  std::string server_task;  // The task that the server must prove to be, "chief:0"; required with
                            // an identity.
};

// Returns a channel to "host:port". It never uses an HTTP proxy: http_proxy and similar variables
// are for addresses outside the cluster. It queries DNS again quickly and does not share its
// connection with other channels.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const ChannelOptions& options = {});

// Returns a context for a unary call. Every unary call needs a deadline.
std::unique_ptr<grpc::ClientContext> WithDeadline(Duration timeout);

}  // namespace muster::rpc
