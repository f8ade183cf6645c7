#include "deploy/launch_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/base/files.h"
#include "common/base/logging.h"
#include "common/cluster/cluster_config.h"
#include "common/security/authority.h"
#include "common/security/run_key.h"
#include "common/train/task_identity.h"

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
  const security::Secret line =
      security::FormatRunKey(security::Secret::Random(security::kRunKeyBytes));
  if (write(made.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return failed();
  Fd inherited(fcntl(made.get(), F_DUPFD, kLeastDescriptor));  // not closed by exec
  if (!inherited) return failed();
  return inherited;
}

// Those that its pattern names; none where that file is not the launcher's.
security::IdentityOptions::Files CertificatesOfLauncher(const Job& job) {
  const auto path = [&](const std::string& text) {
    return PathOfTask(text, "launcher", 0, job.folder);
  };
  const std::string certificate = path(job.tls.certificate);
  std::string why = "is not there";
  if (std::ifstream file(certificate); file) {
    const std::string pem{std::istreambuf_iterator<char>(file), {}};
    const auto facts = security::FactsOfPem(pem);
    if (facts.ok() && facts->peer.task == "launcher")
      return {certificate, path(job.tls.key), path(job.tls.authority)};
    why = "is not of type \"launcher\"";
  }
  LogWarning(
      "the launcher has no certificate ({} {}): a chief notices by silence that a task is lost",
      certificate, why);
  return {};
}

}  // namespace

absl::StatusOr<LaunchKey> LaunchKey::Make(const Job& job, const std::string& key_file) {
  LaunchKey key;
  if (!key_file.empty()) {
    MUSTER_RETURN_IF_ERROR(security::ReadRunKeys(key_file).status());
    key.path_ = std::filesystem::absolute(key_file);
    key.environment_["MUSTER_RUN_KEY_FILE"] = key.path_;
  }
  if (!job.tls.certificate.empty()) {  // they take the key's place
    key.path_.clear();
    key.files_ = CertificatesOfLauncher(job);
  } else if (!key.path_.empty()) {
    return key;
  } else if (!job.security.key_file.empty()) {
    key.path_ = PathFrom(job.folder, job.security.key_file);
  } else if (!job.security.insecure) {
    MUSTER_ASSIGN_OR_RETURN(key.key_, NewKeyInMemory());
    key.environment_[security::kRunKeyDescriptor] = std::to_string(key.key_.get());
  }
  return key;
}

absl::StatusOr<std::shared_ptr<security::Identity>> LaunchKey::IdentityIn(
    const std::string& tf_config) const {
  if (path_.empty() && !key_ && files_.certificate.empty()) return nullptr;
  MUSTER_ASSIGN_OR_RETURN(const ClusterConfig config, ParseTfConfig(tf_config));
  security::IdentityOptions options;
  options.self = {config.cluster.Digest(), "launcher"};
  options.run_key = path_;
  options.files = files_;
  if (key_) options.run_key_descriptor = fcntl(key_.get(), F_DUPFD_CLOEXEC, kLeastDescriptor);
  return security::Identity::Make(std::move(options));
}

}  // namespace muster
