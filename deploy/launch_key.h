// The run key of a local cluster: a new one for each launch, which no file holds, unless the user
// brings one, certificates, or trusts the network.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/base/fd.h"
#include "common/security/identity.h"
#include "common/train/job.h"
#include "muster/status.h"

namespace muster {

class LaunchKey {
 public:
  // `key_file`: --key-file; "" where it is not given. With tls.certificate the launcher's own
  // certificate is that of the type "launcher" and index 0; a line says so where there is none.
  static absl::StatusOr<LaunchKey> Make(const Job& job, const std::string& key_file);

  // What the tasks' environment needs besides.
  const std::map<std::string, std::string>& environment() const { return environment_; }
  // The launcher's own towards the cluster of this TF_CONFIG; null where tasks prove nothing, or
  // only by certificates, and there is none for the launcher.
  absl::StatusOr<std::shared_ptr<security::Identity>> IdentityIn(
      const std::string& tf_config) const;

 private:
  Fd key_;                                  // in memory, inherited by the tasks
  std::string path_;                        // or a file
  security::IdentityOptions::Files files_;  // or certificates
  std::map<std::string, std::string> environment_;
};

}  // namespace muster
