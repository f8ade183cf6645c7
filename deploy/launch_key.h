// The run key of a local cluster: a new one for each launch, which no file holds, unless the user
// brings one or trusts the network.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/base/files/fd.h"
#include "common/job/job.h"
#include "common/security/identity.h"
#include "muster/status.h"

namespace muster {

class LaunchKey {
 public:
  // `key_file`: --key-file; "" where it is not given. In this order, as IdentityFor has it for the
  // tasks: security.key_file, --key-file, security.insecure, a new key. A ConfigurationError where
  // the job and the command line name two of them, where the key cannot be read, and with
  // tls.certificate: certificates are of known ports.
  static absl::StatusOr<LaunchKey> Make(const Job& job, const std::string& key_file);

  // What the tasks' environment needs besides.
  const std::map<std::string, std::string>& environment() const { return environment_; }
  // The launcher's own towards the cluster of this TF_CONFIG; null where tasks prove nothing.
  absl::StatusOr<std::shared_ptr<security::Identity>> IdentityIn(
      const std::string& tf_config) const;

 private:
  Fd key_;            // in memory, inherited by the tasks
  std::string path_;  // or a file
  std::map<std::string, std::string> environment_;
};

}  // namespace muster
