#include "common/security/authority.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include <memory>
#include <optional>
#include <string_view>

#include "absl/strings/match.h"
#include "common/base/peer_text.h"
#include "common/cluster/task.h"

namespace muster::security {
namespace {

using PkeyContext = std::unique_ptr<EVP_PKEY_CTX, Freed<EVP_PKEY_CTX_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>>;

constexpr char kScheme[] = "muster://";
constexpr size_t kClusterDigits = 16;  // The length of ClusterSpec::Digest, in lower case.
constexpr char kInfo[] = "muster run key authority 1";

absl::Status Failed(const char* what) {
  return absl::InternalError(fmt::format("OpenSSL cannot {}: {}", what, OpenSslError()));
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, size);
}

std::string PemOf(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return TextOf(bio.get());
}

absl::StatusOr<std::string> PemOf(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return Failed("write a key");
  return TextOf(bio.get());
}

bool AddExtension(X509* certificate, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

// Returns an unsigned certificate, without the extensions of an authority or a task.
X509Ptr NewCertificate(EVP_PKEY* subject_key, const std::string& subject, const std::string& issuer,
                       uint64_t serial) {
  X509Ptr made(X509_new());
  X509* x = made.get();
  X509_set_version(x, 2);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(x), serial);
  ASN1_TIME_set_string(X509_getm_notBefore(x), "19700101000000Z");
  ASN1_TIME_set_string(X509_getm_notAfter(x), "99991231235959Z");
  const auto name = [](X509_NAME* to, const std::string& text) {
    X509_NAME_add_entry_by_txt(to, "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(text.data()),
                               static_cast<int>(text.size()), -1, 0);
  };
  name(X509_get_subject_name(x), subject);
  X509_NAME* by = X509_NAME_new();
  name(by, issuer);
  X509_set_issuer_name(x, by);
  X509_NAME_free(by);
  X509_set_pubkey(x, subject_key);
  return made;
}

// Returns a name that differs for each key. A certificate contains the name of its authority.
std::string NameOfAuthority(EVP_PKEY* key) {
  unsigned char raw[32] = {}, digest[SHA256_DIGEST_LENGTH];
  size_t size = sizeof raw;
  EVP_PKEY_get_raw_public_key(key, raw, &size);
  SHA256(raw, size, digest);
  return fmt::format("Muster run authority {:02x}{:02x}{:02x}{:02x}{:02x}{:02x}", digest[0],
                     digest[1], digest[2], digest[3], digest[4], digest[5]);
}

uint64_t RandomSerial() {
  uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial);
  return serial >> 1;
}

// Removes the zone of an IPv6 address ("fe80::1%eth0"), which has a meaning on one host only.
std::string WithoutZone(const std::string& host) {
  return host.find(':') == std::string::npos ? host : host.substr(0, host.find('%'));
}

// Returns the 4 or 16 bytes of an IP address, "" for a host name.
std::string BytesOfAddress(const std::string& host) {
  if (host.find('\0') != std::string::npos) return "";
  const std::string text = WithoutZone(host);
  char bytes[sizeof(in6_addr)];
  if (inet_pton(AF_INET, text.c_str(), bytes) == 1) return std::string(bytes, sizeof(in_addr));
  if (inet_pton(AF_INET6, text.c_str(), bytes) == 1) return std::string(bytes, sizeof(in6_addr));
  return "";
}

std::string AddressText(const ASN1_OCTET_STRING* ip) {
  char text[INET6_ADDRSTRLEN] = {};
  const int family = ASN1_STRING_length(ip) == 4 ? AF_INET : AF_INET6;
  if (ASN1_STRING_length(ip) != 4 && ASN1_STRING_length(ip) != 16) return "";
  inet_ntop(family, ASN1_STRING_get0_data(ip), text, sizeof text);
  return text;
}

std::string StringOf(const ASN1_STRING* text) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     ASN1_STRING_length(text));
}

// Returns the common name of the subject, or the whole subject without one, as text for a log line.
std::string NameOf(const X509* certificate) {
  const X509_NAME* name = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
  if (at >= 0)
    return SanitizePeerText(StringOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at))), 200);
  char all[200];
  return X509_NAME_oneline(name, all, sizeof all);
}

}  // namespace

std::string OpenSslError() {
  char text[256] = "no reason given";
  if (const unsigned long code = ERR_peek_last_error(); code != 0)
    ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

absl::StatusOr<Authority> Authority::Make(KeyPtr key) {
  Authority authority;
  authority.name_ = NameOfAuthority(key.get());
  // The certificate only depends on the key. A process can therefore compare certificates to see
  // whether the key has changed.
  const X509Ptr made = NewCertificate(key.get(), authority.name_, authority.name_, 1);
  if (!AddExtension(made.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(made.get(), NID_key_usage, "critical,keyCertSign") ||
      !AddExtension(made.get(), NID_subject_key_identifier, "hash") ||
      X509_sign(made.get(), key.get(), nullptr) == 0)
    return Failed("sign the authority's certificate");
  authority.certificate_ = PemOf(made.get());
  authority.key_ = std::move(key);
  return authority;
}

absl::StatusOr<Authority> Authority::FromRunKey(const Secret& key) {
  Secret seed(32);
  size_t size = seed.size();
  const PkeyContext hkdf(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr));
  if (hkdf == nullptr || EVP_PKEY_derive_init(hkdf.get()) <= 0 ||
      EVP_PKEY_CTX_set_hkdf_md(hkdf.get(), EVP_sha256()) <= 0 ||
      EVP_PKEY_CTX_set1_hkdf_key(hkdf.get(), key.data(), static_cast<int>(key.size())) <= 0 ||
      EVP_PKEY_CTX_add1_hkdf_info(hkdf.get(), reinterpret_cast<const unsigned char*>(kInfo),
                                  sizeof kInfo - 1) <= 0 ||
      EVP_PKEY_derive(hkdf.get(), seed.data(), &size) <= 0)
    return Failed("derive a key");
  KeyPtr made(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size()));
  if (made == nullptr) return Failed("make an Ed25519 key");
  return Make(std::move(made));
}

absl::StatusOr<Authority> Authority::Random() { return FromRunKey(Secret::Random(kRunKeyBytes)); }

absl::StatusOr<std::string> Authority::PrivateKey() const { return PemOf(key_.get()); }

absl::StatusOr<Credentials> Authority::Issue(const std::string& uri,
                                             const std::vector<std::string>& hosts) const {
  const KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Failed("make a P-256 key");
  const X509Ptr made = NewCertificate(key.get(), "Muster task", name_, RandomSerial());
  std::string names = "URI:" + uri;
  for (const std::string& host : hosts)
    names += BytesOfAddress(host).empty() ? ",DNS:" + host : ",IP:" + WithoutZone(host);
  if (!AddExtension(made.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(made.get(), NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(made.get(), NID_ext_key_usage, "serverAuth,clientAuth") ||
      !AddExtension(made.get(), NID_subject_alt_name, names) ||
      X509_sign(made.get(), key_.get(), nullptr) == 0)
    return Failed("sign a certificate");
  Credentials credentials;
  credentials.certificate = PemOf(made.get());
  MUSTER_ASSIGN_OR_RETURN(credentials.key, PemOf(key.get()));
  credentials.authorities = certificate_;
  return credentials;
}

std::string UriOf(const Peer& peer) {
  std::string path = peer.task;
  if (const size_t colon = path.find(':'); colon != std::string::npos) path[colon] = '/';
  return fmt::format("{}{}/{}", kScheme, peer.cluster, path);
}

absl::StatusOr<Peer> PeerFromUri(const std::string& uri) {
  const auto refuse = [] {
    return ConfigurationError("its certificate names no task (a URI muster://CLUSTER/TYPE/INDEX)");
  };
  std::string_view rest = uri;
  if (!rest.starts_with(kScheme)) return refuse();
  rest.remove_prefix(sizeof kScheme - 1);
  if (rest.find('/') != kClusterDigits) return refuse();
  Peer peer;
  peer.cluster = rest.substr(0, kClusterDigits);
  if (peer.cluster.find_first_not_of("0123456789abcdef") != std::string::npos) return refuse();
  rest.remove_prefix(kClusterDigits + 1);
  if (rest == "launcher") {
    peer.task = rest;
    return peer;
  }
  peer.task = rest;
  if (const size_t second = peer.task.find('/'); second != std::string::npos)
    peer.task[second] = ':';
  const std::optional<TaskId> task = ParseTaskId(peer.task);
  // Each task has exactly one URI.
  if (!task || task->ToString() != peer.task || UriOf(peer) != uri) return refuse();
  return peer;
}

absl::StatusOr<CertificateFacts> FactsOf(X509* certificate) {
  CertificateFacts facts;
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  ERR_clear_error();  // A malformed extension must not show up in a later call on this thread.
  std::vector<std::string> tasks;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) facts.hosts.push_back(StringOf(name->d.dNSName));
    if (name->type == GEN_IPADD) facts.hosts.push_back(AddressText(name->d.iPAddress));
    if (name->type != GEN_URI) continue;
    std::string uri = StringOf(name->d.uniformResourceIdentifier);
    if (uri.starts_with(kScheme)) tasks.push_back(std::move(uri));
  }
  if (tasks.size() > 1)
    return ConfigurationError("its certificate names more than one task (URIs muster://)");
  MUSTER_ASSIGN_OR_RETURN(facts.peer, PeerFromUri(tasks.empty() ? "" : tasks[0]));
  return facts;
}

absl::StatusOr<CertificateFacts> FactsOfPem(const std::string& pem) {
  const X509Ptr certificate(PEM_read_bio_X509(BioOf(pem).get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr)
    return ConfigurationError(fmt::format("it is no certificate in PEM form: {}", OpenSslError()));
  return FactsOf(certificate.get());
}

std::vector<X509Ptr> CertificatesOf(const std::string& pem) {
  std::vector<X509Ptr> all;
  const BioPtr bio = BioOf(pem);
  while (X509Ptr next{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)})
    all.push_back(std::move(next));
  ERR_clear_error();  // OpenSSL reports the end of the text as an error.
  return all;
}

std::vector<std::string> NamesOfAuthorities(const std::string& chain,
                                            const std::string& authorities) {
  const std::vector<X509Ptr> signed_by = CertificatesOf(chain);
  std::vector<std::string> names;
  for (const X509Ptr& authority : CertificatesOf(authorities)) {
    const bool signer = !signed_by.empty() &&
                        X509_check_issued(authority.get(), signed_by.back().get()) == X509_V_OK;
    names.insert(signer ? names.begin() : names.end(), NameOf(authority.get()));
  }
  return names;
}

bool SameHost(const std::string& a, const std::string& b) {
  const std::string address = BytesOfAddress(a);
  return address.empty() ? absl::EqualsIgnoreCase(a, b) : address == BytesOfAddress(b);
}

}  // namespace muster::security
