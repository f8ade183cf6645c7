#include "common/rpc/credentials.h"

#include <fmt/format.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <map>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "common/base/logging.h"
#include "common/base/peer_text.h"
#include "common/rpc/guarded.h"
#include "common/rpc/handshakes.h"
#include "common/security/facts_cache.h"

namespace muster::rpc {
namespace {

namespace ge = grpc::experimental;
using security::CertificateFacts;
using security::Identity;
using security::Peer;

// The interval at which gRPC checks whether the identity's files have changed.
constexpr unsigned kWatchSeconds = 1;

std::string Text(grpc::string_ref text) { return std::string(text.data(), text.size()); }

using Provider = std::shared_ptr<ge::CertificateProviderInterface>;

// Returns the provider that all connections of an identity share, because a provider has a thread.
Provider ProviderOf(const Identity& identity) {
  static absl::Mutex mu;
  static auto* const live =
      new std::map<const Identity*, std::weak_ptr<ge::CertificateProviderInterface>>;
  absl::MutexLock lock(&mu);
  std::erase_if(*live, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = live->find(&identity); found != live->end())
    if (Provider provider = found->second.lock()) return provider;
  const Identity::Paths paths = identity.paths();
  Provider made = std::make_shared<ge::FileWatcherCertificateProvider>(
      paths.key, paths.certificate, paths.authorities, kWatchSeconds);
  (*live)[&identity] = made;
  return made;
}

// Checks which task the server's certificate names. gRPC verifies the certificate chain.
class ServerVerifier : public ge::ExternalCertificateVerifier {
 public:
  ServerVerifier(std::shared_ptr<Identity> identity, std::string task, std::string name)
      : identity_(std::move(identity)), task_(std::move(task)), name_(std::move(name)) {}

  bool Verify(ge::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* sync_status) override {
    // gRPC calls this through C code, which no exception may pass.
    *sync_status = Guarded([&] { return CheckCertificate(Text(request->peer_cert())); });
    return true;
  }
  void Cancel(ge::TlsCustomVerificationCheckRequest*) override {}

 private:
  grpc::Status CheckCertificate(const std::string& certificate) {
    const absl::Status verdict = IsServer(certificate);
    if (verdict.ok()) return grpc::Status::OK;
    const std::string why = SanitizePeerText(Message(verdict));
    LogHandshake(name_, why);
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, why);
  }

  absl::Status IsServer(const std::string& certificate) {
    MUSTER_ASSIGN_OR_RETURN(const CertificateFacts facts, security::FactsOfPem(certificate));
    MUSTER_ASSIGN_OR_RETURN(const Peer peer, identity_->VerifyPeer(facts));
    if (peer.task == task_) return absl::OkStatus();
    return PeerLost(fmt::format("it is {}, not {}", peer.task, task_));
  }

  const std::shared_ptr<Identity> identity_;
  const std::string task_, name_;
};

absl::StatusOr<CertificateFacts> FactsFrom(const grpc::AuthContext& context) {
  static auto* const cache = new security::FactsCache;  // Calls may run until the process ends.
  const auto certificate = context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return cache->Get(certificate.empty() ? "" : Text(certificate[0]));
}

// Runs before the handler of each call. Checks the caller's certificate and the CallRule.
class CallCheck : public grpc::AuthMetadataProcessor {
 public:
  CallCheck(std::shared_ptr<Identity> identity, CallRule rule)
      : identity_(std::move(identity)), rule_(std::move(rule)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    return Guarded([&] { return Check(metadata, *context); });
  }

 private:
  grpc::Status Check(const InputMetadata& metadata, const grpc::AuthContext& context) {
    const auto path = metadata.find(":path");
    const std::string method = path == metadata.end() ? "" : Text(path->second);
    const auto facts = FactsFrom(context);
    const absl::StatusOr<Peer> caller =
        facts.ok() ? identity_->VerifyPeer(*facts) : absl::StatusOr<Peer>(facts.status());
    if (!caller.ok()) return Refuse("a peer", method, Message(caller.status()));
    if (method.starts_with("/grpc.health.") || method.starts_with("/grpc.reflection."))
      return grpc::Status::OK;
    if (!rule_ || rule_(*caller, method)) return grpc::Status::OK;
    return Refuse(caller->task, method, "the task may not");
  }

  grpc::Status Refuse(const std::string& who, const std::string& method, std::string_view why) {
    int64_t left_out = 0;
    const std::string called = SanitizePeerText(method, 100), reason = SanitizePeerText(why);
    if (lines_.Take(&left_out)) LogWarning("{} called {} and was refused: {}", who, called, reason);
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                        fmt::format("{} may not call {}: {}", who, called, reason));
  }

  const std::shared_ptr<Identity> identity_;
  const CallRule rule_;
  LogRateLimiter lines_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsFor(
    const std::shared_ptr<Identity>& identity, CallRule rule) {
  if (identity == nullptr) return grpc::InsecureServerCredentials();
  ge::TlsServerCredentialsOptions options(ProviderOf(*identity));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  auto credentials = ge::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<CallCheck>(identity, std::move(rule)));
  return credentials;
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(
    const std::shared_ptr<Identity>& identity, const std::string& server_task,
    const std::string& name) {
  if (identity == nullptr) return grpc::InsecureChannelCredentials();
  ge::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(ProviderOf(*identity));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  options.set_check_call_host(false);  // The certificate names a task instead of a host.
  options.set_certificate_verifier(
      ge::ExternalCertificateVerifier::Create<ServerVerifier>(identity, server_task, name));
  return ge::TlsCredentials(options);
}

std::optional<Peer> CallerOf(const grpc::ServerContextBase& context) {
  const auto authenticated = context.auth_context();
  if (authenticated == nullptr || !authenticated->IsPeerAuthenticated()) return std::nullopt;
  const auto facts = FactsFrom(*authenticated);
  if (!facts.ok()) return Peer{};  // Names no task. CallCheck has refused the call.
  return facts->peer;
}

grpc::Status RequireSpeaker(const grpc::ServerContextBase& context, const std::string& task) {
  const std::optional<Peer> caller = CallerOf(context);
  if (!caller || caller->task == task) return grpc::Status::OK;
  return grpc::Status(
      grpc::StatusCode::PERMISSION_DENIED,
      fmt::format("{} may not speak for {}", caller->task, SanitizePeerText(task, 100)));
}

}  // namespace muster::rpc
