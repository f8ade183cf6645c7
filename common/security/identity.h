// The TLS identity of this process: its certificate, its private key and the authorities that it
// trusts. A process has one Identity for all its gRPC connections and data connections. The
// certificate and key come from certificate files of the user, or are made from the run key
// (run_key.h). Thread-safe.
//
// A thread of the Identity reads the run key file or the certificate files every few seconds. If
// the content has changed, new connections use the new content. Existing connections continue.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/files/fd.h"
#include "common/base/wait.h"
#include "common/security/authority.h"
#include "common/security/expiry.h"
#include "common/security/stream_security.h"

namespace muster::security {

struct IdentityOptions {
  Peer self;
  // Exactly one of run_key, run_key_descriptor and files is set.
  std::string run_key;  // The path of a key file.
  // A descriptor of a key file. Make reads it once and closes it.
  std::optional<int> run_key_descriptor;
  struct Files {
    std::string certificate, key, authority;  // Paths of PEM files. Empty: not used.
  } files;
  // The host of each task, keyed by task ("worker:1"). Used only with `files`: the certificate of a
  // task in `hosts` must name the task's host.
  std::map<std::string, std::string> hosts;
  Duration look_again = std::chrono::seconds(3);  // The interval at which the files are read.
  std::function<int64_t()> wall_clock;  // Returns seconds since 1970. Null: the host's clock.
};

class Identity final : public StreamSecurity {
 public:
  // Returns ConfigurationError if the key or the files are invalid, or if the certificate does not
  // name `options.self`.
  static absl::StatusOr<std::shared_ptr<Identity>> Make(IdentityOptions options);
  ~Identity() override;

  const Peer& self() const { return options_.self; }
  bool from_files() const { return !options_.files.certificate.empty(); }

  absl::StatusOr<SslPtr> NewSession(bool server, const std::string& address) override;
  absl::StatusOr<Peer> PeerOf(const SSL& session) override;
  // Checks the names in a certificate whose signature is already verified. Returns the cluster and
  // task of the certificate. Returns ConfigurationError if the cluster differs from this process's
  // cluster, or if the certificate does not name the host of its task (IdentityOptions::hosts). The
  // host check applies only with certificate files.
  absl::StatusOr<Peer> VerifyPeer(const CertificateFacts& facts) const;

  // Returns the path of a file with an expired certificate, or "" if there is none. Peers refuse
  // the connections of a process whose certificate has expired.
  std::string Expired() const { return expiry_.Ended(Now()); }

  // Returns the ReadingToken of each run key. A key file has one or two run keys (RunKeys in
  // run_key.h). A holder of a token may read the state of this cluster over HTTP (common/web). The
  // first token belongs to the key from which this process made its certificate. If this process
  // uses certificate files, returns an empty vector.
  std::vector<std::string> ReadingTokens() const;

  // Returns the names of the trusted authorities, for example "Muster run authority 1a2b...". The
  // authority that signed this process's own certificate comes first. The names reveal no key.
  std::vector<std::string> Authorities() const;

  // Paths of memory files (memfd) with the current PEM texts. gRPC watches these files. Only this
  // process can open them.
  struct Paths {
    std::string certificate, key, authorities;
  };
  Paths paths() const;

  // Reads the key file or the certificate files now. Logs a warning for each certificate file that
  // has expired or expires soon (ExpiryWatch). If the new content is invalid, logs the error once
  // and keeps the previous content. Has no effect if run_key_descriptor is set.
  void Refresh();

 private:
  explicit Identity(IdentityOptions options) : options_(std::move(options)) {}
  struct Context;   // Owns an SSL_CTX.
  struct Sessions;  // The TLS sessions of earlier connections, which a client can resume.

  struct Source;  // The content of the key file or of the certificate files.
  absl::StatusOr<Source> Read() const;
  absl::StatusOr<Credentials> CredentialsOf(const Source& source) const;
  absl::Status Use(const Source& source);
  absl::Status UseIfChanged();
  void Watch();
  int64_t Now() const;
  std::shared_ptr<Context> context() const;

  const IdentityOptions options_;
  Fd certificate_, key_, authorities_;  // The files of paths().
  mutable absl::Mutex mu_;
  std::shared_ptr<Context> context_ ABSL_GUARDED_BY(mu_);
  std::string source_ ABSL_GUARDED_BY(mu_);                 // Digest of the Source of context_.
  std::vector<std::string> accepted_ ABSL_GUARDED_BY(mu_);  // The result of Authorities().
  std::vector<std::string> tokens_ ABSL_GUARDED_BY(mu_);    // The result of ReadingTokens().
  std::string last_problem_ ABSL_GUARDED_BY(mu_);
  ExpiryWatch expiry_;
  Notification end_;
  std::thread watch_;
};

}  // namespace muster::security
