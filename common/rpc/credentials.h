// Credentials of servers and channels: none, or TLS with certificates of both sides
// (common/security/identity.h).
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

// Returns whether `caller` may call `method`, "/muster.proto.Coordinator/Session". Must not block.
using CallRule = std::function<bool(const security::Peer& caller, std::string_view method)>;

// Returns plaintext credentials if `identity` is null. The rule is checked before a call's handler
// runs. Every caller with a valid certificate may call health and reflection. With an empty rule it
// may call everything.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsFor(
    const std::shared_ptr<security::Identity>& identity, CallRule rule);
// `server_task`: the task that the server must prove to be, "chief:0". `name`: from
// HandshakeNameOf.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(
    const std::shared_ptr<security::Identity>& identity, const std::string& server_task,
    const std::string& name);

// Returns the caller according to its certificate, nullopt on a plaintext connection.
std::optional<security::Peer> CallerOf(const grpc::ServerContextBase& context);
// Returns OK if `task` is the caller's own, or if the connection is plaintext.
grpc::Status RequireSpeaker(const grpc::ServerContextBase& context, const std::string& task);

}  // namespace muster::rpc
