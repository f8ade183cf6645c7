// Plain text or mutual TLS, for servers and channels alike.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "muster/status.h"

namespace muster::rpc {

// PEM files. With TLS on, both sides show a certificate that the authority signed.
struct TlsFiles {
  bool enabled = false;
  std::string certificate, key, authority;
};

// A file that cannot be read is a ConfigurationError that names it.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(const TlsFiles& tls);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const TlsFiles& tls);

}  // namespace muster::rpc
