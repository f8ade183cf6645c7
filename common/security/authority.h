// Certificates: who may say that it is which task of a cluster.
//
// A certificate names its task by a URI, "muster://<cluster digest>/worker/1" or
// "muster://<cluster digest>/launcher". The authority that signs them is made from the run key, or
// by `muster key certificates`, or is the user's own.
#pragma once

#include <openssl/crypto.h>

#include <string>
#include <vector>

#include "common/security/openssl.h"
#include "common/security/run_key.h"
#include "common/security/stream_security.h"
#include "muster/status.h"

namespace muster::security {

// PEM texts.
struct Credentials {
  std::string certificate;  // the leaf, then what is between it and the authority
  std::string key;          // the leaf's private key
  std::string authorities;  // one or several certificates
  ~Credentials() { OPENSSL_cleanse(key.data(), key.size()); }
};

// Signs with an Ed25519 key. Certificates hold from 1970 to 9999, so that no clock decides.
class Authority {
 public:
  // The one that all who hold the key make: Ed25519's private key is HKDF-SHA256(run key, no salt,
  // "muster run key authority 1"), RFC 5869.
  static absl::StatusOr<Authority> FromRunKey(const Secret& key);
  static absl::StatusOr<Authority> Random();

  // A new key pair (P-256) with a certificate for `uri` and these hosts (names or addresses).
  absl::StatusOr<Credentials> Issue(const std::string& uri,
                                    const std::vector<std::string>& hosts) const;
  const std::string& certificate() const { return certificate_; }
  // PEM, for whoever wants to keep it.
  absl::StatusOr<std::string> PrivateKey() const;

 private:
  static absl::StatusOr<Authority> Make(KeyPtr key);

  KeyPtr key_;
  std::string name_, certificate_;
};

std::string UriOf(const Peer& peer);
// ConfigurationError where it is none of ours: a cluster is written as ClusterSpec::Digest does, a
// task as TaskId does.
absl::StatusOr<Peer> PeerFromUri(const std::string& uri);

// What a certificate says of its holder, whoever signed it: the same for control and data
// connections. One of its URIs names the task; those of other schemes (spiffe://) are for others.
struct CertificateFacts {
  Peer peer;
  std::vector<std::string> hosts;  // names and addresses
};
absl::StatusOr<CertificateFacts> FactsOf(X509* certificate);
absl::StatusOr<CertificateFacts> FactsOfPem(const std::string& pem);
// Of a PEM text; empty where there are none.
std::vector<X509Ptr> CertificatesOf(const std::string& pem);
// By name, the one that has signed the chain first.
std::vector<std::string> NamesOfAuthorities(const std::string& chain,
                                            const std::string& authorities);
// Whether two texts mean one host: addresses by their bytes, names in any case.
bool SameHost(const std::string& a, const std::string& b);

// The newest of OpenSSL's errors on this thread, in its words; clears them.
std::string OpenSslError();

}  // namespace muster::security
