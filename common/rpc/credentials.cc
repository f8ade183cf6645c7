#include "common/rpc/credentials.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace muster::rpc {
namespace {

absl::StatusOr<std::string> ReadPem(const std::string& path, std::string_view key) {
  if (path.empty())
    return ConfigurationError(fmt::format("tls.{} is missing: name a PEM file", key));
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return ConfigurationError(fmt::format("tls.{}: cannot read {}", key, path));
  return text.str();
}

struct Pems {
  std::string certificate, key, authority;
};

absl::StatusOr<Pems> ReadAll(const TlsFiles& tls) {
  Pems pems;
  MUSTER_ASSIGN_OR_RETURN(pems.certificate, ReadPem(tls.certificate, "certificate"));
  MUSTER_ASSIGN_OR_RETURN(pems.key, ReadPem(tls.key, "key"));
  MUSTER_ASSIGN_OR_RETURN(pems.authority, ReadPem(tls.authority, "authority"));
  return pems;
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(const TlsFiles& tls) {
  if (!tls.enabled) return grpc::InsecureServerCredentials();
  MUSTER_ASSIGN_OR_RETURN(const Pems pems, ReadAll(tls));
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = pems.authority;
  options.pem_key_cert_pairs.push_back({pems.key, pems.certificate});
  return grpc::SslServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsFor(
    const TlsFiles& tls) {
  if (!tls.enabled) return grpc::InsecureChannelCredentials();
  MUSTER_ASSIGN_OR_RETURN(const Pems pems, ReadAll(tls));
  return grpc::SslCredentials({pems.authority, pems.key, pems.certificate});
}

}  // namespace muster::rpc
