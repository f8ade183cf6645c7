// Certificates of a cluster's tasks, and the certificate authority (CA) that signs them.
//
// A certificate names its task by a URI: "muster://<cluster digest>/worker/1" or
// "muster://<cluster digest>/launcher". The cluster digest (ClusterSpec::Digest) identifies the
// addresses of the cluster. The CA of a run comes from one of three sources: the run key
// (run_key.h), the command `muster key certificates`, or the user.
#pragma once

#include <openssl/crypto.h>

#include <string>
#include <vector>

#include "common/security/openssl.h"
#include "common/security/run_key.h"
#include "common/security/stream_security.h"
#include "muster/status.h"

namespace muster::security {

// A private key, its certificate, and the trusted authorities, as PEM texts.
struct Credentials {
  std::string certificate;  // The leaf certificate, followed by the intermediate certificates.
  std::string key;          // The private key of the leaf certificate.
  std::string authorities;  // The certificates of one or more trusted authorities.
  ~Credentials() { OPENSSL_cleanse(key.data(), key.size()); }
};

// A certificate authority with an Ed25519 key. The signed certificates are valid from 1970 to 9999,
// so a host with a wrong clock also accepts them.
class Authority {
 public:
  // Returns the same authority in every process that has the run key. The authority's Ed25519
  // private key is HKDF-SHA256(run key, no salt, "muster run key authority 1") (RFC 5869).
  static absl::StatusOr<Authority> FromRunKey(const Secret& key);
  static absl::StatusOr<Authority> Random();

  // Returns a new P-256 key pair and its certificate. The certificate names `uri` and `hosts`. Each
  // of `hosts` is a host name or an IP address.
  absl::StatusOr<Credentials> Issue(const std::string& uri,
                                    const std::vector<std::string>& hosts) const;
  // Returns the authority's own certificate as PEM.
  const std::string& certificate() const { return certificate_; }
  // Returns the private key as PEM.
  absl::StatusOr<std::string> PrivateKey() const;

 private:
  static absl::StatusOr<Authority> Make(KeyPtr key);

  KeyPtr key_;
  std::string name_, certificate_;
};

// Returns the URI that names `peer` in a certificate.
std::string UriOf(const Peer& peer);
// Parses a result of UriOf. Returns ConfigurationError for any other text.
absl::StatusOr<Peer> PeerFromUri(const std::string& uri);

// The names in a certificate. Exactly one URI of a certificate has the scheme muster://. This URI
// names the task. URIs with other schemes, such as spiffe://, are ignored.
struct CertificateFacts {
  Peer peer;
  std::vector<std::string> hosts;  // Host names and IP addresses.
};
// FactsOf and FactsOfPem return ConfigurationError if the certificate is malformed or does not name
// exactly one task. They do not verify the signature, because the TLS handshake verifies it.
absl::StatusOr<CertificateFacts> FactsOf(X509* certificate);
absl::StatusOr<CertificateFacts> FactsOfPem(const std::string& pem);
// Parses all certificates of a PEM text. Returns an empty vector if there are none.
std::vector<X509Ptr> CertificatesOf(const std::string& pem);
// Returns the common name of each certificate in `authorities`. The authority that signed `chain`
// comes first. Both arguments are PEM.
std::vector<std::string> NamesOfAuthorities(const std::string& chain,
                                            const std::string& authorities);
// Returns whether two texts name the same host. Compares IP addresses as bytes, and host names
// without regard to case.
bool SameHost(const std::string& a, const std::string& b);

// Returns the text of OpenSSL's latest error on this thread. Clears this thread's OpenSSL errors.
std::string OpenSslError();

}  // namespace muster::security
