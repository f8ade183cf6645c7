#include "common/security/identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>

#include "common/base/logging.h"

namespace muster::security {
namespace {

constexpr int64_t kWeek = 7 * 24 * 3600;
constexpr size_t kMostSessions = 4096;
constexpr size_t kLongestPem = 1 << 20;
// AES first: the processors that train have instructions for it.
constexpr char kCipherSuites[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

absl::StatusOr<std::string> ReadPem(const std::string& path, const char* key) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return ConfigurationError(fmt::format("{}: cannot read {}", key, path));
  std::ostringstream text;
  text << file.rdbuf();
  if (text.str().size() > kLongestPem)
    return ConfigurationError(fmt::format("{}: {} is no PEM file", key, path));
  return text.str();
}

std::string DigestOf(const Credentials& credentials) {
  std::string all =
      credentials.certificate + '\0' + credentials.key + '\0' + credentials.authorities;
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(all.data()), all.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

// Each time another file under the same number, so that a reader never sees a part of it.
absl::Status PutInto(Fd& to, const std::string& text) {
  Fd file(memfd_create("muster", MFD_CLOEXEC));
  if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return ConfigurationError(
        fmt::format("cannot keep a certificate in memory: {}", strerror(errno)));
  if (!to) {
    to = std::move(file);
  } else if (dup3(file.get(), to.get(), O_CLOEXEC) < 0) {
    return ConfigurationError(fmt::format("cannot replace a certificate: {}", strerror(errno)));
  }
  return absl::OkStatus();
}

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};
std::unique_ptr<BIO, FreeBio> Bio(const std::string& text) {
  return std::unique_ptr<BIO, FreeBio>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

struct FreeX509 {
  void operator()(X509* x) const { X509_free(x); }
};
using X509Ptr = std::unique_ptr<X509, FreeX509>;

// The address by which a client's session is kept, on its SSL object.
int AddressSlot() {
  static const int slot = SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr, [](void*, void* address, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<std::string*>(address);
      });
  return slot;
}

}  // namespace

struct Identity::Context {
  ~Context() { SSL_CTX_free(ssl); }
  SSL_CTX* ssl = SSL_CTX_new(TLS_method());
  absl::Mutex mu;
  struct FreeSession {
    void operator()(SSL_SESSION* s) const { SSL_SESSION_free(s); }
  };
  std::map<std::string, std::unique_ptr<SSL_SESSION, FreeSession>> sessions ABSL_GUARDED_BY(mu);

  absl::Status Fill(const Credentials& credentials);
  static int Keep(SSL* ssl, SSL_SESSION* session);
};

int Identity::Context::Keep(SSL* ssl, SSL_SESSION* session) {
  const auto* address = static_cast<const std::string*>(SSL_get_ex_data(ssl, AddressSlot()));
  if (address == nullptr) return 0;
  auto* self = static_cast<Context*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  absl::MutexLock lock(&self->mu);
  if (self->sessions.size() >= kMostSessions) self->sessions.clear();
  // A copy: OpenSSL spoils the session of a connection that ends without a farewell.
  self->sessions[*address].reset(SSL_SESSION_dup(session));
  return 0;
}

absl::Status Identity::Context::Fill(const Credentials& credentials) {
  const auto wrong = [](const char* what) {
    return ConfigurationError(fmt::format("{}: {}", what, OpenSslError()));
  };
  SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(ssl, kCipherSuites);
  SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_verify_depth(ssl, 4);
  static constexpr unsigned char kName[] = "muster";
  SSL_CTX_set_session_id_context(ssl, kName, sizeof kName - 1);
  SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_set_num_tickets(ssl, 1);
  SSL_CTX_set_app_data(ssl, this);
  SSL_CTX_sess_set_new_cb(ssl, &Context::Keep);

  const auto leaf = Bio(credentials.certificate);
  const X509Ptr first(PEM_read_bio_X509(leaf.get(), nullptr, nullptr, nullptr));
  if (first == nullptr || SSL_CTX_use_certificate(ssl, first.get()) != 1)
    return wrong("tls.certificate is not usable");
  while (X509* more = PEM_read_bio_X509(leaf.get(), nullptr, nullptr, nullptr))
    SSL_CTX_add_extra_chain_cert(ssl, more);
  ERR_clear_error();  // the end of the text is one
  EVP_PKEY* key = PEM_read_bio_PrivateKey(Bio(credentials.key).get(), nullptr, nullptr, nullptr);
  const bool fits = key != nullptr && SSL_CTX_use_PrivateKey(ssl, key) == 1 &&
                    SSL_CTX_check_private_key(ssl) == 1;
  EVP_PKEY_free(key);
  if (!fits) return wrong("tls.key is not usable with tls.certificate");
  X509_STORE* store = SSL_CTX_get_cert_store(ssl);
  const auto roots = Bio(credentials.authorities);
  int count = 0;
  while (X509* root = PEM_read_bio_X509(roots.get(), nullptr, nullptr, nullptr)) {
    X509_STORE_add_cert(store, root);
    X509_free(root);
    ++count;
  }
  ERR_clear_error();
  return count > 0 ? absl::OkStatus()
                   : ConfigurationError("tls.authority holds no certificate in PEM form");
}

absl::StatusOr<std::shared_ptr<Identity>> Identity::Make(IdentityOptions options) {
  std::shared_ptr<Identity> identity(new Identity(std::move(options)));
  MUSTER_ASSIGN_OR_RETURN(Credentials credentials, identity->Load());
  MUSTER_RETURN_IF_ERROR(identity->Use(std::move(credentials)));
  if (!identity->options_.run_key_descriptor)
    identity->watch_ = std::thread([self = identity.get()] { self->Watch(); });
  return identity;
}

Identity::~Identity() {
  end_.Notify();
  if (watch_.joinable()) watch_.join();
}

// Of a run key: a leaf that this process makes for itself.
absl::StatusOr<Credentials> Identity::Load() {
  const auto& files = options_.files;
  if (from_files()) {
    Credentials credentials;
    MUSTER_ASSIGN_OR_RETURN(credentials.certificate, ReadPem(files.certificate, "tls.certificate"));
    MUSTER_ASSIGN_OR_RETURN(credentials.key, ReadPem(files.key, "tls.key"));
    MUSTER_ASSIGN_OR_RETURN(credentials.authorities, ReadPem(files.authority, "tls.authority"));
    return credentials;
  }
  absl::StatusOr<RunKeys> keys = options_.run_key_descriptor
                                     ? ReadRunKeys(*options_.run_key_descriptor)
                                     : ReadRunKeys(options_.run_key);
  if (options_.run_key_descriptor) close(*options_.run_key_descriptor);
  MUSTER_RETURN_IF_ERROR(keys.status());
  Credentials credentials;
  for (const Secret& key : *keys) {
    MUSTER_ASSIGN_OR_RETURN(const Authority authority, Authority::FromRunKey(key));
    if (credentials.certificate.empty()) {
      MUSTER_ASSIGN_OR_RETURN(credentials, authority.Issue(UriOf(options_.self), {}));
    } else {
      credentials.authorities += authority.certificate();
    }
  }
  return credentials;
}

absl::Status Identity::Use(Credentials credentials) {
  absl::StatusOr<CertificateFacts> facts = FactsOfPem(credentials.certificate);
  if (!facts.ok()) return Annotate(facts.status(), fmt::format("{}: ", options_.files.certificate));
  if (facts->peer.task != options_.self.task)
    return ConfigurationError(fmt::format("{} is the certificate of {}, and this task is {}",
                                          options_.files.certificate, facts->peer.task,
                                          options_.self.task));
  if (const auto believed = Believe(*facts); !believed.ok())
    return Annotate(believed.status(), fmt::format("{}: ", options_.files.certificate));
  auto made = std::make_shared<Context>();
  MUSTER_RETURN_IF_ERROR(made->Fill(credentials));
  MUSTER_RETURN_IF_ERROR(PutInto(authorities_, credentials.authorities));
  MUSTER_RETURN_IF_ERROR(PutInto(key_, credentials.key));
  MUSTER_RETURN_IF_ERROR(PutInto(certificate_, credentials.certificate));
  absl::MutexLock lock(&mu_);
  context_ = std::move(made);
  source_ = SourceOf(credentials);
  authority_ = SubjectOfPem(credentials.authorities);
  const int64_t left = facts->expires - static_cast<int64_t>(std::time(nullptr));
  if (left < kWeek && !warned_of_expiry_) {
    warned_of_expiry_ = true;
    LogWarning("the certificate {} {}", options_.files.certificate,
               left < 0 ? "has expired: peers refuse it"
                        : fmt::format("expires in {} hours", left / 3600));
  }
  return absl::OkStatus();
}

std::string Identity::SourceOf(const Credentials& credentials) const {
  return DigestOf(from_files() ? credentials : Credentials{"", "", credentials.authorities});
}

void Identity::Watch() {
  while (!end_.WaitFor(options_.look_again)) Refresh();
}

void Identity::Refresh() {
  if (options_.run_key_descriptor) return;
  absl::Status result;
  absl::StatusOr<Credentials> loaded = Load();
  if (!loaded.ok()) {
    result = loaded.status();
  } else {
    bool same = false;
    {
      absl::MutexLock lock(&mu_);
      same = SourceOf(*loaded) == source_;
    }
    if (!same) {
      result = Use(*std::move(loaded));
      if (result.ok())
        LogInfo("the {} changed: new connections use it",
                from_files() ? "certificates have" : "run key has");
    }
  }
  absl::MutexLock lock(&mu_);
  if (result.ok()) return last_problem_.clear();
  std::string problem(Message(result));
  if (problem == last_problem_) return;
  LogWarning("{}; what was read before stays in use", problem);
  last_problem_ = std::move(problem);
}

std::shared_ptr<Identity::Context> Identity::context() const {
  absl::MutexLock lock(&mu_);
  return context_;
}

absl::StatusOr<SslPtr> Identity::NewSession(bool server, const std::string& address) {
  const std::shared_ptr<Context> made = context();
  SslPtr ssl(SSL_new(made->ssl));
  if (ssl == nullptr) return PeerLost(fmt::format("no TLS session: {}", OpenSslError()));
  if (server) {
    SSL_set_accept_state(ssl.get());
    return ssl;
  }
  SSL_set_connect_state(ssl.get());
  if (address.empty()) return ssl;
  SSL_set_ex_data(ssl.get(), AddressSlot(), new std::string(address));
  absl::MutexLock lock(&made->mu);
  if (const auto found = made->sessions.find(address); found != made->sessions.end())
    SSL_set_session(ssl.get(), found->second.get());
  return ssl;
}

absl::StatusOr<Peer> Identity::PeerOf(const SSL& session) {
  X509* certificate = SSL_get0_peer_certificate(&session);
  if (certificate == nullptr) return PeerLost("it shows no certificate");
  if (const long verified = SSL_get_verify_result(&session); verified != X509_V_OK)
    return PeerLost(
        fmt::format("its certificate is refused: {}", X509_verify_cert_error_string(verified)));
  MUSTER_ASSIGN_OR_RETURN(const CertificateFacts facts, FactsOf(certificate));
  return Believe(facts);
}

absl::StatusOr<Peer> Identity::Believe(const CertificateFacts& facts) const {
  if (facts.peer.cluster != options_.self.cluster)
    return ConfigurationError(
        fmt::format("the certificate is of a task of another cluster ({}, this one is {})",
                    facts.peer.cluster, options_.self.cluster));
  if (!from_files() || facts.peer.task == "launcher") return facts.peer;
  const auto host = options_.hosts.find(facts.peer.task);
  if (host == options_.hosts.end()) return facts.peer;
  if (std::find(facts.hosts.begin(), facts.hosts.end(), host->second) == facts.hosts.end())
    return ConfigurationError(fmt::format("the certificate of {} does not name its host, {}",
                                          facts.peer.task, host->second));
  return facts.peer;
}

std::string Identity::AuthorityName() const {
  absl::MutexLock lock(&mu_);
  return authority_;
}

Identity::Paths Identity::paths() const {
  const auto path = [](const Fd& file) { return fmt::format("/proc/self/fd/{}", file.get()); };
  return {path(certificate_), path(key_), path(authorities_)};
}

}  // namespace muster::security
