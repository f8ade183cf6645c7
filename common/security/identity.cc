#include "common/security/identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <new>

#include "common/base/logging.h"
#include "common/security/refusal.h"

namespace muster::security {
namespace {

constexpr size_t kMaxSessions = 4096;
constexpr off_t kLongestPem = 1 << 20;

absl::StatusOr<std::string> ReadPem(const std::string& path, const char* key) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file || fstat(file.get(), &about) != 0)
    return ConfigurationError(fmt::format("{}: cannot read {}", key, path));
  if (!S_ISREG(about.st_mode) || about.st_size > kLongestPem)
    return ConfigurationError(fmt::format("{}: {} is no PEM file", key, path));
  // Reads the file with one call, into its final memory. A growing string would leave parts of a
  // key in freed memory.
  std::string text(about.st_size, '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
  if (size < 0) return ConfigurationError(fmt::format("{}: cannot read {}", key, path));
  text.resize(size);
  return text;
}

// Replaces the file of the descriptor `to` by a new file in memory, under the same number. A reader
// of the path therefore never sees a partial text.
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

// The index under which an SSL object of a client stores the address that the client dials.
int AddressSlot() {
  static const int slot = SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr, [](void*, void* address, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<std::string*>(address);
      });
  return slot;
}

}  // namespace

struct Identity::Source {
  Credentials files;
  RunKeys keys;

  // Hashes the parts one by one. A concatenated string would leave parts of the keys in freed
  // memory.
  std::string Digest() const {
    const std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>> hash(EVP_MD_CTX_new());
    EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr);
    const auto add = [&](const void* data, size_t size) {
      EVP_DigestUpdate(hash.get(), &size, sizeof size);
      EVP_DigestUpdate(hash.get(), data, size);
    };
    add(files.certificate.data(), files.certificate.size());
    add(files.key.data(), files.key.size());
    add(files.authorities.data(), files.authorities.size());
    for (const Secret& key : keys) add(key.data(), key.size());
    std::string digest(SHA256_DIGEST_LENGTH, '\0');
    EVP_DigestFinal_ex(hash.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr);
    return digest;
  }
};

// The SSL_CTX owns this object. Connections that continue after a change of keys keep their old
// SSL_CTX, and still store tickets here.
struct Identity::Sessions {
  absl::Mutex mu;
  using SessionPtr = std::unique_ptr<SSL_SESSION, Freed<SSL_SESSION_free>>;
  std::map<std::string, SessionPtr> by_address ABSL_GUARDED_BY(mu);

  static int Slot() {
    static const int slot = CRYPTO_get_ex_new_index(
        CRYPTO_EX_INDEX_SSL_CTX, 0, nullptr, nullptr, nullptr,
        [](void*, void* sessions, CRYPTO_EX_DATA*, int, long, void*) {  // NOLINT: OpenSSL's
          delete static_cast<Sessions*>(sessions);
        });
    return slot;
  }
  static Sessions& Of(const SSL_CTX* ssl) {
    return *static_cast<Sessions*>(SSL_CTX_get_ex_data(ssl, Slot()));
  }
};

struct Identity::Context {
  Context() { SSL_CTX_set_ex_data(ssl, Sessions::Slot(), new Sessions); }
  ~Context() { SSL_CTX_free(ssl); }
  SSL_CTX* const ssl = SSL_CTX_new(TLS_method());

  absl::Status Fill(const Credentials& credentials);
  static int Keep(SSL* ssl, SSL_SESSION* session);
};

int Identity::Context::Keep(SSL* ssl, SSL_SESSION* session) {
  const auto* address = static_cast<const std::string*>(SSL_get_ex_data(ssl, AddressSlot()));
  if (address == nullptr) return 0;
  Sessions& sessions = Sessions::Of(SSL_get_SSL_CTX(ssl));
  absl::MutexLock lock(&sessions.mu);
  if (sessions.by_address.size() >= kMaxSessions) sessions.by_address.clear();
  // Stores a copy, because OpenSSL invalidates the session of a connection that ends without a
  // close_notify alert.
  sessions.by_address[*address].reset(SSL_SESSION_dup(session));
  return 0;
}

absl::Status Identity::Context::Fill(const Credentials& credentials) {
  const auto wrong = [](const char* what) {
    return ConfigurationError(fmt::format("{}: {}", what, OpenSslError()));
  };
  // TlsStream sets the TLS version, the ciphers and the number of tickets.
  SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_verify_depth(ssl, 4);
  static constexpr unsigned char kName[] = "muster";
  SSL_CTX_set_session_id_context(ssl, kName, sizeof kName - 1);
  SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(ssl, &Context::Keep);

  const BioPtr leaf = BioOf(credentials.certificate);
  const X509Ptr first(PEM_read_bio_X509(leaf.get(), nullptr, nullptr, nullptr));
  if (first == nullptr || SSL_CTX_use_certificate(ssl, first.get()) != 1)
    return wrong("tls.certificate is not usable");
  while (X509* more = PEM_read_bio_X509(leaf.get(), nullptr, nullptr, nullptr))
    SSL_CTX_add_extra_chain_cert(ssl, more);
  ERR_clear_error();  // OpenSSL reports the end of the text as an error.
  const KeyPtr key(
      PEM_read_bio_PrivateKey(BioOf(credentials.key).get(), nullptr, nullptr, nullptr));
  if (key == nullptr || SSL_CTX_use_PrivateKey(ssl, key.get()) != 1 ||
      SSL_CTX_check_private_key(ssl) != 1)
    return wrong("tls.key is not usable with tls.certificate");
  X509_STORE* store = SSL_CTX_get_cert_store(ssl);
  const BioPtr roots = BioOf(credentials.authorities);
  int count = 0;
  while (const X509Ptr root{PEM_read_bio_X509(roots.get(), nullptr, nullptr, nullptr)}) {
    X509_STORE_add_cert(store, root.get());
    ++count;
  }
  ERR_clear_error();
  return count > 0 ? absl::OkStatus()
                   : ConfigurationError("tls.authority holds no certificate in PEM form");
}

absl::StatusOr<std::shared_ptr<Identity>> Identity::Make(IdentityOptions options) {
  std::shared_ptr<Identity> identity(new Identity(std::move(options)));
  MUSTER_ASSIGN_OR_RETURN(const Source source, identity->Read());
  MUSTER_RETURN_IF_ERROR(identity->Use(source));
  identity->expiry_.Look(identity->Now());
  if (!identity->options_.run_key_descriptor)
    identity->watch_ = std::thread([self = identity.get()] { self->Watch(); });
  return identity;
}

Identity::~Identity() {
  end_.Notify();
  if (watch_.joinable()) watch_.join();
}

absl::StatusOr<Identity::Source> Identity::Read() const {
  Source source;
  if (from_files()) {
    const auto& from = options_.files;
    MUSTER_ASSIGN_OR_RETURN(source.files.certificate, ReadPem(from.certificate, "tls.certificate"));
    MUSTER_ASSIGN_OR_RETURN(source.files.key, ReadPem(from.key, "tls.key"));
    MUSTER_ASSIGN_OR_RETURN(source.files.authorities, ReadPem(from.authority, "tls.authority"));
    return source;
  }
  absl::StatusOr<RunKeys> keys = options_.run_key_descriptor
                                     ? ReadRunKeys(*options_.run_key_descriptor)
                                     : ReadRunKeys(options_.run_key);
  if (options_.run_key_descriptor) close(*options_.run_key_descriptor);
  MUSTER_RETURN_IF_ERROR(keys.status());
  source.keys = *std::move(keys);
  return source;
}

// With run keys, this process issues its own leaf certificate.
absl::StatusOr<Credentials> Identity::CredentialsOf(const Source& source) const {
  if (from_files()) return source.files;
  Credentials credentials;
  for (const Secret& key : source.keys) {
    MUSTER_ASSIGN_OR_RETURN(const Authority authority, Authority::FromRunKey(key));
    if (credentials.certificate.empty()) {
      MUSTER_ASSIGN_OR_RETURN(credentials, authority.Issue(UriOf(options_.self), {}));
    } else {
      credentials.authorities += authority.certificate();
    }
  }
  return credentials;
}

absl::Status Identity::Use(const Source& source) {
  MUSTER_ASSIGN_OR_RETURN(const Credentials credentials, CredentialsOf(source));
  absl::StatusOr<CertificateFacts> facts = FactsOfPem(credentials.certificate);
  if (!facts.ok()) return Annotate(facts.status(), fmt::format("{}: ", options_.files.certificate));
  if (facts->peer.task != options_.self.task)
    return ConfigurationError(fmt::format("{} is the certificate of {}, and this task is {}",
                                          options_.files.certificate, facts->peer.task,
                                          options_.self.task));
  if (const auto verified_peer = VerifyPeer(*facts); !verified_peer.ok())
    return Annotate(verified_peer.status(), fmt::format("{}: ", options_.files.certificate));
  auto made = std::make_shared<Context>();
  MUSTER_RETURN_IF_ERROR(made->Fill(credentials));
  MUSTER_RETURN_IF_ERROR(PutInto(authorities_, credentials.authorities));
  MUSTER_RETURN_IF_ERROR(PutInto(key_, credentials.key));
  MUSTER_RETURN_IF_ERROR(PutInto(certificate_, credentials.certificate));
  absl::MutexLock lock(&mu_);
  context_ = std::move(made);
  source_ = source.Digest();
  accepted_ = NamesOfAuthorities(credentials.certificate, credentials.authorities);
  tokens_.clear();
  for (const Secret& key : source.keys) tokens_.push_back(ReadingToken(key));
  if (!from_files()) return absl::OkStatus();
  std::map<std::string, int64_t> ends;
  if (const auto end = AuthorityExpiry(credentials.certificate, credentials.authorities))
    ends[options_.files.authority] = *end;
  if (const auto end = ChainExpiry(credentials.certificate))
    ends[options_.files.certificate] = *end;
  expiry_.Set(std::move(ends));
  return absl::OkStatus();
}

void Identity::Watch() {
  while (!end_.WaitFor(options_.look_again)) {
    try {
      Refresh();
    } catch (const std::bad_alloc&) {
      // The previous content stays in use. The next round tries again.
    }
  }
}

absl::Status Identity::UseIfChanged() {
  MUSTER_ASSIGN_OR_RETURN(const Source source, Read());
  {
    absl::MutexLock lock(&mu_);
    if (source.Digest() == source_) return absl::OkStatus();
  }
  MUSTER_RETURN_IF_ERROR(Use(source));
  LogInfo("the {} changed: new connections use it",
          from_files() ? "certificates have" : "run key has");
  return absl::OkStatus();
}

int64_t Identity::Now() const {
  return options_.wall_clock ? options_.wall_clock() : static_cast<int64_t>(std::time(nullptr));
}

void Identity::Refresh() {
  if (options_.run_key_descriptor) return;
  const absl::Status result = UseIfChanged();
  expiry_.Look(Now());
  absl::MutexLock lock(&mu_);
  if (result.ok()) return last_problem_.clear();
  std::string problem(Message(result));
  if (problem == last_problem_) return;
  LogWarning("{}; the earlier files stay in use", problem);
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
  Sessions& sessions = Sessions::Of(made->ssl);
  absl::MutexLock lock(&sessions.mu);
  if (const auto found = sessions.by_address.find(address); found != sessions.by_address.end())
    SSL_set_session(ssl.get(), found->second.get());
  return ssl;
}

absl::StatusOr<Peer> Identity::PeerOf(const SSL& session) {
  X509* certificate = SSL_get0_peer_certificate(&session);
  if (certificate == nullptr) return PeerLost("it shows no certificate");
  if (const long verified = SSL_get_verify_result(&session); verified != X509_V_OK)
    return PeerLost(RefusedCertificateText(verified));
  MUSTER_ASSIGN_OR_RETURN(const CertificateFacts facts, FactsOf(certificate));
  return VerifyPeer(facts);
}

absl::StatusOr<Peer> Identity::VerifyPeer(const CertificateFacts& facts) const {
  if (facts.peer.cluster != options_.self.cluster)
    return ConfigurationError(
        fmt::format("the certificate is of a task of another cluster ({}, this one is {})",
                    facts.peer.cluster, options_.self.cluster));
  if (!from_files() || facts.peer.task == "launcher") return facts.peer;
  const auto host = options_.hosts.find(facts.peer.task);
  if (host == options_.hosts.end()) return facts.peer;
  if (std::ranges::none_of(facts.hosts,
                           [&](const std::string& named) { return SameHost(named, host->second); }))
    return ConfigurationError(fmt::format("the certificate of {} does not name its host, {}",
                                          facts.peer.task, host->second));
  return facts.peer;
}

std::vector<std::string> Identity::Authorities() const {
  absl::MutexLock lock(&mu_);
  return accepted_;
}

std::vector<std::string> Identity::ReadingTokens() const {
  absl::MutexLock lock(&mu_);
  return tokens_;
}

Identity::Paths Identity::paths() const {
  const auto path = [](const Fd& file) { return fmt::format("/proc/self/fd/{}", file.get()); };
  return {path(certificate_), path(key_), path(authorities_)};
}

}  // namespace muster::security
