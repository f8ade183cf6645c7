#include "tests/unit/transport/test_authority.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <cstdlib>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/security/openssl.h"
#include "muster/status.h"

namespace muster::testing {
namespace {

using security::Freed;
using security::KeyPtr;
using security::X509Ptr;
using ContextPtr = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using SessionPtr = std::unique_ptr<SSL_SESSION, Freed<SSL_SESSION_free>>;

// Ends the process if a call of OpenSSL fails, which does not happen in tests.
void Must(bool done) {
  if (!done) std::abort();
}

void AddExtension(X509* certificate, int kind, const std::string& value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
  Must(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

X509Ptr MakeCertificate(const std::string& name, EVP_PKEY* subject, const X509* issuer,
                        EVP_PKEY* issuer_key, const std::string& uri, bool expired = false) {
  X509Ptr certificate(X509_new());
  X509* const c = certificate.get();
  uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial);
  Must(X509_set_version(c, X509_VERSION_3) == 1 &&
       ASN1_INTEGER_set_uint64(X509_get_serialNumber(c), serial >> 1) == 1);
  constexpr long kDay = 24 * 60 * 60;
  X509_gmtime_adj(X509_getm_notBefore(c), -10 * kDay);
  X509_gmtime_adj(X509_getm_notAfter(c), expired ? -kDay : kDay);
  X509_NAME* const subject_name = X509_get_subject_name(c);
  Must(X509_NAME_add_entry_by_txt(subject_name, "CN", MBSTRING_UTF8,
                                  reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                                  0) == 1);
  X509_set_issuer_name(c, issuer == nullptr ? subject_name : X509_get_subject_name(issuer));
  X509_set_pubkey(c, subject);
  AddExtension(c, NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
  if (!uri.empty()) AddExtension(c, NID_subject_alt_name, "URI:" + uri);
  Must(X509_sign(c, issuer_key, nullptr) != 0);
  return certificate;
}

class Security final : public TestSecurity {
 public:
  Security(X509* authority, X509* certificate, EVP_PKEY* key, std::string cluster, bool resume)
      : cluster_(std::move(cluster)), resume_(resume), context_(SSL_CTX_new(TLS_method())) {
    SSL_CTX* const ctx = context_.get();
    Must(SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) == 1 &&
         SSL_CTX_use_certificate(ctx, certificate) == 1 && SSL_CTX_use_PrivateKey(ctx, key) == 1 &&
         X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), authority) == 1);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    const unsigned char id[] = "muster";
    SSL_CTX_set_session_id_context(ctx, id, sizeof id);
    if (!resume) {
      SSL_CTX_set_num_tickets(ctx, 0);
      return;
    }
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_BOTH | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_set_app_data(ctx, this);
    SSL_CTX_sess_set_new_cb(ctx, [](SSL* ssl, SSL_SESSION* session) {
      return static_cast<Security*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)))
          ->Remember(ssl, session);
    });
  }

  absl::StatusOr<security::SslPtr> NewSession(bool server, const std::string& address) override {
    security::SslPtr ssl(SSL_new(context_.get()));
    if (ssl == nullptr) return absl::ResourceExhaustedError("no memory for a TLS session");
    if (server) {
      SSL_set_accept_state(ssl.get());
      return ssl;
    }
    SSL_set_connect_state(ssl.get());
    absl::MutexLock lock(&mutex_);
    const auto place = sessions_.try_emplace(address).first;
    SSL_set_app_data(ssl.get(), const_cast<std::string*>(&place->first));
    if (resume_ && place->second != nullptr) SSL_set_session(ssl.get(), place->second.get());
    return ssl;
  }

  absl::StatusOr<security::Peer> PeerOf(const SSL& session) override {
    X509* const certificate = SSL_get0_peer_certificate(&session);
    if (certificate == nullptr) return PeerLost("it shows no certificate");
    ++(SSL_session_reused(&session) == 1 ? resumed : full);
    auto* const names = static_cast<GENERAL_NAMES*>(
        X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
    std::string uri;
    if (names != nullptr && sk_GENERAL_NAME_num(names) > 0) {
      const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, 0);
      if (name->type == GEN_URI) {
        const ASN1_IA5STRING* const text = name->d.uniformResourceIdentifier;
        uri.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                   ASN1_STRING_length(text));
      }
    }
    GENERAL_NAMES_free(names);
    const std::string prefix = "muster://" + cluster_ + "/";
    if (!uri.starts_with(prefix)) return PeerLost("it is of another cluster: " + uri);
    std::string task = uri.substr(prefix.size());
    if (const size_t slash = task.find('/'); slash != std::string::npos) task[slash] = ':';
    return security::Peer{cluster_, task};
  }

 private:
  int Remember(SSL* ssl, SSL_SESSION* session) {
    const auto* const address = static_cast<const std::string*>(SSL_get_app_data(ssl));
    if (address == nullptr) return 0;  // The session is one of a server.
    absl::MutexLock lock(&mutex_);
    sessions_[*address].reset(session);
    return 1;
  }

  const std::string cluster_;
  const bool resume_;
  const ContextPtr context_;
  absl::Mutex mutex_;
  std::map<std::string, SessionPtr> sessions_ ABSL_GUARDED_BY(mutex_);  // By address.
};

}  // namespace

struct TestAuthority::Keys {
  std::string cluster;
  KeyPtr key;
  X509Ptr certificate;

  std::shared_ptr<TestSecurity> Issue(const std::string& cluster, const std::string& task,
                                      bool resume, bool expired) const {
    const KeyPtr leaf_key(EVP_EC_gen("P-256"));
    std::string path = task;
    if (const size_t colon = path.find(':'); colon != std::string::npos) path[colon] = '/';
    const X509Ptr leaf = MakeCertificate("a task", leaf_key.get(), certificate.get(), key.get(),
                                         fmt::format("muster://{}/{}", cluster, path), expired);
    return std::make_shared<Security>(certificate.get(), leaf.get(), leaf_key.get(), cluster,
                                      resume);
  }
};

TestAuthority::TestAuthority(std::string cluster) : keys_(std::make_unique<Keys>()) {
  keys_->cluster = std::move(cluster);
  keys_->key.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  keys_->certificate =
      MakeCertificate("a test's authority", keys_->key.get(), nullptr, keys_->key.get(), "");
}

TestAuthority::~TestAuthority() = default;

std::shared_ptr<TestSecurity> TestAuthority::Issue(const std::string& task, bool resume) {
  return keys_->Issue(keys_->cluster, task, resume, /*expired=*/false);
}

std::shared_ptr<TestSecurity> TestAuthority::IssueFor(const std::string& cluster,
                                                      const std::string& task) {
  return keys_->Issue(cluster, task, /*resume=*/false, /*expired=*/false);
}

std::shared_ptr<TestSecurity> TestAuthority::IssueExpired(const std::string& task) {
  return keys_->Issue(keys_->cluster, task, /*resume=*/false, /*expired=*/true);
}

}  // namespace muster::testing
