// How servers and channels prove who they are: not at all, or by TLS with certificates of both
// sides (common/security/identity.h).
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

// Whether a peer may call "/muster.proto.Coordinator/Session". Must not block.
using CallRule = std::function<bool(const security::Peer& caller, std::string_view method)>;

// Null: plaintext. The rule is asked before a call's handler is; health and reflection are for all
// that have proved who they are. An empty rule lets them call everything.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsFor(
    const std::shared_ptr<security::Identity>& identity, CallRule rule);
// `server_task`: whom the server has to be, "chief:0". `name`: of HandshakeNameOf.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(
    const std::shared_ptr<security::Identity>& identity, const std::string& server_task,
    const std::string& name);

// Who calls, as its certificate says; nullopt on a plaintext connection.
std::optional<security::Peer> CallerOf(const grpc::ServerContextBase& context);
// OK where `task` is the caller's own, or nobody has to prove anything.
grpc::Status RequireSpeaker(const grpc::ServerContextBase& context, const std::string& task);

}  // namespace muster::rpc
