// Who this process is to its peers, and whom it believes: one for a process, for its gRPC
// connections and its data connections alike. All methods may be called from any thread.
//
// A thread looks at the key or the certificates every few seconds and takes over what has changed:
// connections that stand stay, new ones show and demand the new.
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
  // One of the three.
  std::string run_key;                    // a path
  std::optional<int> run_key_descriptor;  // read once, and closed
  struct Files {
    std::string certificate, key, authority;  // PEM; empty: not used
  } files;
  // With certificates from files: the host of each task, which its certificate has to name.
  std::map<std::string, std::string> hosts;
  Duration look_again = std::chrono::seconds(3);
  std::function<int64_t()> wall_clock;  // seconds since 1970; null: the host's
};

class Identity final : public StreamSecurity {
 public:
  // A ConfigurationError says what is wrong with the key or the files, or that the certificate is
  // another task's.
  static absl::StatusOr<std::shared_ptr<Identity>> Make(IdentityOptions options);
  ~Identity() override;

  const Peer& self() const { return options_.self; }
  bool from_files() const { return !options_.files.certificate.empty(); }

  absl::StatusOr<SslPtr> NewSession(bool server, const std::string& address) override;
  absl::StatusOr<Peer> PeerOf(const SSL& session) override;
  // Whether the holder of a certificate that an authority of ours has signed is believed: its
  // cluster is this one, and its certificate names the host of its task.
  absl::StatusOr<Peer> Believe(const CertificateFacts& facts) const;

  // A file whose certificate has expired, so that peers refuse it; "" where none has.
  std::string Expired() const { return expiry_.Ended(Now()); }

  // "Muster run authority 1a2b...", of whose certificates it accepts: first the authority that has
  // signed its own. Tells nothing of a key.
  std::vector<std::string> Authorities() const;

  // Paths by which this process alone reads the present PEM texts; for gRPC, which watches files.
  struct Paths {
    std::string certificate, key, authorities;
  };
  Paths paths() const;

  // Looks at the key or the files now, and at the end of certificates from files. What is wrong is
  // logged once and changes nothing.
  void Refresh();

 private:
  explicit Identity(IdentityOptions options) : options_(std::move(options)) {}
  struct Context;   // an SSL_CTX
  struct Sessions;  // those of it to resume

  struct Source;
  absl::StatusOr<Source> Read() const;
  absl::StatusOr<Credentials> CredentialsOf(const Source& source) const;
  absl::Status Use(const Source& source);
  absl::Status UseIfChanged();
  void Watch();
  int64_t Now() const;
  std::shared_ptr<Context> context() const;

  const IdentityOptions options_;
  Fd certificate_, key_, authorities_;  // memory files
  mutable absl::Mutex mu_;
  std::shared_ptr<Context> context_ ABSL_GUARDED_BY(mu_);
  std::string source_ ABSL_GUARDED_BY(mu_);                 // digest of what the context is made of
  std::vector<std::string> accepted_ ABSL_GUARDED_BY(mu_);  // by name
  std::string last_problem_ ABSL_GUARDED_BY(mu_);
  ExpiryWatch expiry_;
  Notification end_;
  std::thread watch_;
};

}  // namespace muster::security
