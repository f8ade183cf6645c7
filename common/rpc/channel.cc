#include "common/rpc/channel.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "common/rpc/handshakes.h"
#include "common/rpc/library.h"

namespace muster::rpc {

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const ChannelOptions& options) {
  RetainGrpc();
  if (options.identity != nullptr && options.server_task.empty())
    return absl::InternalError(
        fmt::format("nobody has said which task has to answer at {}", address));
  const std::string name =
      options.identity == nullptr ? "" : HandshakeNameOf(address, options.server_task);
  auto credentials = ChannelCredentialsFor(options.identity, options.server_task, name);
  grpc::ChannelArguments arguments;
  if (!name.empty()) arguments.SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, name);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // RetryPolicy handles retries.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, Milliseconds(options.retry.max));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Milliseconds(options.retry.initial));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(options.retry.max));
  // Despite its name, this limits the time of one attempt to connect.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Milliseconds(options.connect_timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kKeepalive));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kKeepaliveTimeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A small compressed message may be large when decompressed. No part of Muster compresses.
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  // The scheme is explicit, because gRPC would parse "localhost:5000" as the scheme "localhost".
  return grpc::CreateCustomChannel("dns:///" + address, credentials, arguments);
}

std::unique_ptr<grpc::ClientContext> WithDeadline(Duration timeout) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
  return context;
}

}  // namespace muster::rpc
