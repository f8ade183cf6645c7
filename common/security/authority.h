// Certificates of a cluster's tasks, and the certificate authority (CA) that signs them.
//
// A certificate names its task by a URI: "muster://<cluster digest>/worker/1" or
// "muster://<cluster digest>/launcher". There are three sources of an authority: the run key,
// `muster key certificates`, or the user's own CA.
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
  std::string certificate;  // The leaf, then the intermediate certificates.
  std::string key;          // The leaf's private key.
  std::string authorities;  // The certificates of one or several trusted authorities.
  ~Credentials() { OPENSSL_cleanse(key.data(), key.size()); }
};

// Signs certificates with an Ed25519 key. Its certificates are valid from 1970 to 9999, so a wrong
// clock does not invalidate them.
class Authority {
 public:
  // Returns the same authority in every process that has the run key. Its Ed25519 private key is
  // HKDF-SHA256(run key, no salt, "muster run key authority 1") (RFC 5869).
  static absl::StatusOr<Authority> FromRunKey(const Secret& key);
  // Returns an authority with a new random key.
  static absl::StatusOr<Authority> Random();

  // Returns a new P-256 key pair and its certificate. The certificate names `uri` and `hosts`,
  // which are host names or IP addresses.
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
// Parses a result of UriOf. Returns ConfigurationError for any other text. The cluster must have
// the form of ClusterSpec::Digest, and the task that of TaskId::ToString.
absl::StatusOr<Peer> PeerFromUri(const std::string& uri);

// The content of a certificate. The signature is checked elsewhere. gRPC and data connections use
// the same certificates. Exactly one URI of scheme muster:// names the task. URIs of other schemes
// (spiffe://) are ignored.
struct CertificateFacts {
  Peer peer;
  std::vector<std::string> hosts;  // Host names and IP addresses.
};
// Return ConfigurationError if the certificate is invalid or does not name exactly one task.
absl::StatusOr<CertificateFacts> FactsOf(X509* certificate);
absl::StatusOr<CertificateFacts> FactsOfPem(const std::string& pem);
// Parses all certificates of a PEM text. Returns an empty vector if there are none.
std::vector<X509Ptr> CertificatesOf(const std::string& pem);
// Returns the names of the authorities. The authority that signed `chain` comes first. Both
// arguments are PEM.
std::vector<std::string> NamesOfAuthorities(const std::string& chain,
                                            const std::string& authorities);
// Returns whether two texts name the same host. Compares IP addresses as bytes, and host names
// without regard to case.
bool SameHost(const std::string& a, const std::string& b);

// Returns the text of OpenSSL's latest error on this thread. Clears all of the thread's errors.
std::string OpenSslError();

}  // namespace muster::security
