#include "deploy/launch_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/base/files.h"
#include "common/cluster/cluster_config.h"
#include "common/security/run_key.h"

namespace muster {
namespace {

// Above the numbers that a child gives new meanings.
constexpr int kLeastDescriptor = 10;

absl::StatusOr<Fd> NewKeyInMemory() {
  const auto failed = [] {
    return ConfigurationError(fmt::format("cannot make a run key: {}", strerror(errno)));
  };
  const Fd made(memfd_create("muster run key", MFD_CLOEXEC));
  if (!made) return failed();
  std::string line = security::FormatRunKey(security::Secret::Random(security::kRunKeyBytes));
  line += '\n';
  const ssize_t written = write(made.get(), line.data(), line.size());
  OPENSSL_cleanse(line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) return failed();
  Fd inherited(fcntl(made.get(), F_DUPFD, kLeastDescriptor));  // not closed by exec
  if (!inherited) return failed();
  return inherited;
}

}  // namespace

absl::StatusOr<LaunchKey> LaunchKey::Make(const Job& job, const std::string& key_file) {
  LaunchKey key;
  if (!key_file.empty()) {
    MUSTER_RETURN_IF_ERROR(security::ReadRunKeys(key_file).status());
    key.path_ = std::filesystem::absolute(key_file);
    key.environment_["MUSTER_RUN_KEY_FILE"] = key.path_;
  } else if (!job.security.key_file.empty()) {
    key.path_ = PathFrom(job.folder, job.security.key_file);
  } else if (job.tls.certificate.empty() && !job.security.insecure) {
    MUSTER_ASSIGN_OR_RETURN(key.key_, NewKeyInMemory());
    key.environment_[security::kRunKeyDescriptor] = std::to_string(key.key_.get());
  }
  return key;
}

absl::StatusOr<std::shared_ptr<security::Identity>> LaunchKey::IdentityIn(
    const std::string& tf_config) const {
  if (path_.empty() && !key_) return nullptr;
  MUSTER_ASSIGN_OR_RETURN(const ClusterConfig config, ParseTfConfig(tf_config));
  security::IdentityOptions options;
  options.self = {config.cluster.Digest(), "launcher"};
  options.run_key = path_;
  if (key_) options.run_key_descriptor = fcntl(key_.get(), F_DUPFD_CLOEXEC, kLeastDescriptor);
  return security::Identity::Make(std::move(options));
}

}  // namespace muster
