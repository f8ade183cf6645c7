// gRPC credentials of servers and channels. With an Identity (common/security/identity.h), both
// sides of a connection use TLS and present certificates. Without an Identity, connections are
// plaintext.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/security/identity.h"
#include "muster/status.h"

namespace muster::rpc {

// Returns whether `caller` may call `method`, for example "/muster.proto.Coordinator/Session". The
// function must not block.
using CallRule = std::function<bool(const security::Peer& caller, std::string_view method)>;

// Returns plaintext credentials if `identity` is null. Otherwise a caller needs a valid
// certificate, and gRPC applies `rule` before the handler of a call runs. The rule does not apply
// to the health and reflection services. An empty rule permits all calls.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsFor(
    const std::shared_ptr<security::Identity>& identity, CallRule rule);
// Returns plaintext credentials if `identity` is null. Otherwise the server's certificate must name
// the task `server_task` ("chief:0"). `name` is the result of HandshakeNameOf (handshakes.h).
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(
    const std::shared_ptr<security::Identity>& identity, const std::string& server_task,
    const std::string& name);

// Returns the cluster and task in the caller's certificate, or nullopt on a plaintext connection.
std::optional<security::Peer> CallerOf(const grpc::ServerContextBase& context);
// Returns OK if the caller's certificate names `task`, or if the connection is plaintext. Otherwise
// returns PERMISSION_DENIED.
grpc::Status RequireSpeaker(const grpc::ServerContextBase& context, const std::string& task);

}  // namespace muster::rpc
