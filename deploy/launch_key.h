// LaunchKey is the run key of a local cluster. By default each launch makes a new key, which exists
// only in memory. The user may supply a key file instead, or disable security.
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
  // `key_file` is the value of --key-file, "" if absent. The first of these that is set decides, as
  // in IdentityFor: security.key_file, --key-file, security.insecure. Otherwise a new key is made.
  // Returns ConfigurationError if both the job and the command line set one of these, or if the key
  // cannot be read. Also returns it for a job with tls.certificate, because certificates require
  // fixed ports.
  static absl::StatusOr<LaunchKey> Make(const Job& job, const std::string& key_file);

  // Returns the variables to add to the environment of the tasks.
  const std::map<std::string, std::string>& environment() const { return environment_; }
  // Returns the text of the key file, for tasks on other hosts. Returns nullopt if the tasks read
  // their own key file (security.key_file), or use no key.
  absl::StatusOr<std::optional<security::Secret>> Text() const;
  // Returns the launcher's identity in the cluster of this TF_CONFIG. Returns null if the tasks use
  // no key.
  absl::StatusOr<std::shared_ptr<security::Identity>> IdentityIn(
      const std::string& tf_config) const;
  // Returns the token that grants access to the status page, "" if the tasks use no key.
  absl::StatusOr<std::string> ReadingToken() const;

 private:
  Fd key_;               // The key in memory, which the tasks inherit. Unset if a file is used.
  std::string path_;     // The key file, "" if none.
  bool of_job_ = false;  // path_ is security.key_file. Each host has its own.
  std::map<std::string, std::string> environment_;
};

}  // namespace muster
