#include "deploy/status/status_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "common/base/peer_text.h"
#include "common/process/task_identity.h"
#include "common/rpc/channel.h"
#include "common/rpc/host.h"
#include "common/security/authority.h"
#include "common/security/run_key.h"

namespace muster::status {
namespace {

using security::BioPtr;
using security::X509Ptr;
using ContextPtr = std::unique_ptr<SSL_CTX, security::Freed<SSL_CTX_free>>;

constexpr int kNapMilliseconds = 10;

absl::Status NotReached(const std::string& address, std::string_view why) {
  return PeerLost(fmt::format("the chief at {} cannot be reached: {}", address, why));
}

std::string NameOf(const X509_NAME* name) {
  char text[256] = "";
  X509_NAME_get_text_by_NID(const_cast<X509_NAME*>(name), NID_commonName, text, sizeof text);
  return SanitizePeerText(text);
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string PathIn(const Job& job, const std::string& path) {
  return PathOfTask(path, "chief", 0, job.folder);
}

// Finds the credentials of this process. Returns false if there are none.
bool FindCredentials(const ChiefChannelOptions& link, security::IdentityOptions* options) {
  const Job& job = link.job;
  if (!link.key_file.empty()) {
    options->run_key = link.key_file;
  } else if (!job.tls.certificate.empty()) {
    options->files = {PathIn(job, job.tls.certificate), PathIn(job, job.tls.key),
                      PathIn(job, job.tls.authority)};
  } else if (!job.security.key_file.empty()) {
    options->run_key = PathIn(job, job.security.key_file);
  } else if (Fd key = OpenKeyOfLauncher(link.chief_pid)) {
    options->run_key_descriptor = key.Release();
  } else {
    options->run_key = security::RunKeyPath("");
  }
  return !options->files.certificate.empty() || !options->run_key.empty() ||
         options->run_key_descriptor;
}

absl::StatusOr<std::shared_ptr<security::Identity>> IdentityFor(const ChiefChannelOptions& link,
                                                                const ServerCertificate& server,
                                                                security::IdentityOptions options) {
  const bool from_key = options.files.certificate.empty();
  options.self = {server.peer.cluster, "launcher"};
  if (!from_key) {
    MUSTER_ASSIGN_OR_RETURN(const security::CertificateFacts own,
                            security::FactsOfPem(ReadAll(options.files.certificate)));
    options.self = own.peer;
    MUSTER_ASSIGN_OR_RETURN(const rpc::HostPort at, rpc::SplitHostPort(link.address));
    options.hosts[server.peer.task] = at.host;
  }
  MUSTER_ASSIGN_OR_RETURN(std::shared_ptr<security::Identity> identity,
                          security::Identity::Make(std::move(options)));
  const std::vector<std::string> known = identity->Authorities();
  if (from_key && std::find(known.begin(), known.end(), server.issuer) == known.end())
    return ConfigurationError(fmt::format("the chief at {} has another run key ({}, not {})",
                                          link.address, server.issuer,
                                          known.empty() ? "none" : known[0]));
  return identity;
}

}  // namespace

absl::StatusOr<std::optional<ServerCertificate>> CertificateOfServer(const std::string& address,
                                                                     Duration timeout) {
  MUSTER_RETURN_IF_ERROR(rpc::SplitHostPort(address).status());
  switch (rpc::ProbeNamedPort(address, timeout)) {
    case rpc::PortState::kOpen:
      break;
    case rpc::PortState::kRefused:
      return NotReached(address, "the connection is refused");
    case rpc::PortState::kUnknown:
      return NotReached(address, fmt::format("no answer within {:g} s", Seconds(timeout)));
  }
  // OpenSSL counts in whole seconds.
  const auto seconds =
      std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(timeout).count());
  BioPtr tcp(BIO_new_connect(address.c_str()));
  ERR_clear_error();
  if (tcp == nullptr ||
      BIO_do_connect_retry(tcp.get(), static_cast<int>(seconds), kNapMilliseconds) <= 0)
    return NotReached(address, security::OpenSslError());
  const ContextPtr context(SSL_CTX_new(TLS_client_method()));
  const BioPtr tls(BIO_new_ssl(context.get(), /*client=*/1));
  if (tls == nullptr) return NotReached(address, security::OpenSslError());
  BIO_push(tls.get(), tcp.release());
  SSL* session = nullptr;
  BIO_get_ssl(tls.get(), &session);
  const time_t until = time(nullptr) + seconds;
  while (BIO_do_handshake(tls.get()) <= 0) {
    if (!BIO_should_retry(tls.get())) break;
    if (BIO_wait(tls.get(), until, kNapMilliseconds) <= 0)
      return NotReached(address, "it accepts the connection but does not answer");
  }
  ERR_clear_error();
  const X509Ptr certificate(SSL_get1_peer_certificate(session));
  if (certificate == nullptr) return std::optional<ServerCertificate>();
  MUSTER_ASSIGN_OR_RETURN(const security::CertificateFacts facts,
                          security::FactsOf(certificate.get()));
  return ServerCertificate{facts.peer, NameOf(X509_get_issuer_name(certificate.get()))};
}

Fd OpenKeyOfLauncher(int64_t pid) {
  if (pid <= 0) return Fd();
  const std::string environment = '\0' + ReadAll(fmt::format("/proc/{}/environ", pid));
  const std::string key = std::string(1, '\0') + security::kRunKeyDescriptor + "=";
  const size_t at = environment.find(key);
  const std::string stat = ReadAll(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  if (at == std::string::npos || name_end == std::string::npos) return Fd();
  int descriptor = -1;
  const char* const digits = environment.data() + at + key.size();
  std::from_chars(digits, environment.data() + environment.size(), descriptor);
  std::istringstream fields(stat.substr(name_end + 1));
  std::string run_state;
  int64_t parent = 0;
  fields >> run_state >> parent;
  if (descriptor < 0 || parent <= 1) return Fd();
  return Fd(open(fmt::format("/proc/{}/fd/{}", parent, descriptor).c_str(), O_RDONLY | O_CLOEXEC));
}

std::string RequiresIdentity(const std::string& address) {
  return fmt::format(
      "the chief at {} requires an identity: name its run key with --key-file, or with --job the "
      "job file whose security.key_file or tls.certificate it uses",
      address);
}

absl::StatusOr<rpc::ChannelOptions> ChannelToChief(const ChiefChannelOptions& options,
                                                   Duration timeout) {
  security::IdentityOptions credentials;
  rpc::ChannelOptions channel;
  // A chief without a key logs a warning about a TLS client, so use TLS only with a key.
  if (FindCredentials(options, &credentials)) {
    MUSTER_ASSIGN_OR_RETURN(const std::optional<ServerCertificate> server,
                            CertificateOfServer(options.address, timeout));
    if (server) {
      MUSTER_ASSIGN_OR_RETURN(channel.identity,
                              IdentityFor(options, *server, std::move(credentials)));
      channel.server_task = server->peer.task;
    }
  }
  return channel;
}

absl::StatusOr<std::unique_ptr<StatusClient>> StatusClient::Open(const ChiefChannelOptions& options,
                                                                 Duration timeout) {
  MUSTER_ASSIGN_OR_RETURN(const rpc::ChannelOptions channel, ChannelToChief(options, timeout));
  MUSTER_ASSIGN_OR_RETURN(auto made, rpc::MakeChannel(options.address, channel));
  return std::unique_ptr<StatusClient>(
      new StatusClient(options.address, channel.identity != nullptr, std::move(made)));
}

absl::StatusOr<proto::StatusReply> StatusClient::Ask(Duration timeout) {
  proto::StatusReply reply;
  const grpc::Status asked = stub_->Status(rpc::WithDeadline(timeout).get(), {}, &reply);
  if (asked.ok()) return reply;
  if (asked.error_code() == grpc::StatusCode::UNIMPLEMENTED)
    return ConfigurationError(fmt::format("{} is not the chief of a job", address_));
  // gRPC's error message is hard to understand. Connect to the port to find the reason.
  MUSTER_ASSIGN_OR_RETURN(const std::optional<ServerCertificate> server,
                          CertificateOfServer(address_, timeout));
  if (server && !has_identity_) return ConfigurationError(RequiresIdentity(address_));
  return NotReached(address_, SanitizePeerText(asked.error_message()));
}

}  // namespace muster::status
