// LaunchKey is the run key of the cluster that `muster launch` starts. A run key is a secret by
// which the tasks of a cluster prove their identity to each other (docs/security.md). By default,
// each launch makes a new key, which exists only in memory. The user may supply a key file instead,
// or disable security.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/files/fd.h"
#include "common/job/job.h"
#include "common/security/identity.h"
#include "common/security/run_key.h"
#include "muster/status.h"

namespace muster {

class LaunchKey {
 public:
  // `key_file` is the value of --key-file, "" if absent. Uses the key in the job's
  // security.key_file, or else the key in `key_file`. If neither is set, makes a new key, or no key
  // if the job's security.insecure is true. Returns ConfigurationError if --key-file is set and the
  // job sets security.key_file or security.insecure. Also returns ConfigurationError if the key
  // cannot be read, or if the job sets tls.certificate, which requires fixed ports.
  static absl::StatusOr<LaunchKey> Make(const Job& job, const std::string& key_file);

  // Returns the environment variables through which the tasks find the key.
  const std::map<std::string, std::string>& environment() const { return environment_; }
  // Returns the text of the key, in the format of a key file, to send to other hosts. Returns
  // nullopt if the tasks use no key, or if each host has its own key file (security.key_file).
  absl::StatusOr<std::optional<security::Secret>> Text() const;
  // Returns the TLS identity with which the launcher calls the tasks of the cluster in `tf_config`.
  // Returns null if the tasks use no key.
  absl::StatusOr<std::shared_ptr<security::Identity>> IdentityIn(
      const std::string& tf_config) const;
  // Returns the token that grants access to the chief's status page (docs/status.md). Returns "" if
  // the tasks use no key.
  absl::StatusOr<std::string> ReadingToken() const;

 private:
  // A file in memory with the new key. The tasks inherit the descriptor. Unset if no key was made.
  Fd key_;
  std::string path_;  // The key file, "" if none.
  // True if path_ is the job's security.key_file. Each host then has its own key file.
  bool of_job_ = false;
  std::map<std::string, std::string> environment_;
};

}  // namespace muster
