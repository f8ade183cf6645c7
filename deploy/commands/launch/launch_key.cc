#include "deploy/commands/launch/launch_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/cluster/cluster_config.h"
#include "common/process/task_identity.h"
#include "common/security/run_key.h"

namespace muster {

absl::StatusOr<LaunchKey> LaunchKey::Make(const Job& job, const std::string& key_file) {
  if (!job.tls.certificate.empty())
    return ConfigurationError(
        "`muster launch` takes no certificates (tls.certificate): they require fixed ports, and it "
        "chooses free ones; leave the keys of tls out (--set tls={}), each launch makes a run key");
  const std::string& own_file = job.security.key_file;
  const bool insecure = job.security.insecure;
  if (!key_file.empty() && (insecure || !own_file.empty()))
    return ConfigurationError(
        fmt::format("--key-file is given, but the tasks use the job's {}: leave out one of them",
                    own_file.empty() ? "security.insecure" : "security.key_file"));
  LaunchKey key;
  if (!own_file.empty()) {
    key.path_ = PathOfTask(own_file, "launcher", 0, job.folder);
    key.of_job_ = true;
  } else if (!key_file.empty()) {
    key.path_ = std::filesystem::absolute(key_file);
    key.environment_["MUSTER_RUN_KEY_FILE"] = key.path_;
  } else if (!insecure) {
    MUSTER_ASSIGN_OR_RETURN(
        key.key_,
        security::RunKeyToInherit(
            security::FormatRunKey(security::Secret::Random(security::kRunKeyBytes)).text()));
    key.environment_[security::kRunKeyDescriptor] = std::to_string(key.key_.get());
  }
  if (!key.path_.empty()) MUSTER_RETURN_IF_ERROR(security::ReadRunKeys(key.path_).status());
  return key;
}

absl::StatusOr<std::optional<security::Secret>> LaunchKey::Text() const {
  constexpr size_t kMaxSize = 4096;  // A key file has at most two lines.
  if (of_job_ || (path_.empty() && !key_)) return std::nullopt;
  const Fd opened(key_ ? -1 : open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  security::Secret read(kMaxSize);
  const ssize_t size = pread(key_ ? key_.get() : opened.get(), read.data(), read.size(), 0);
  if (size <= 0)
    return ConfigurationError(fmt::format("cannot read the run key: {}", strerror(errno)));
  security::Secret text(static_cast<size_t>(size));
  std::memcpy(text.data(), read.data(), text.size());
  return text;
}

absl::StatusOr<std::shared_ptr<security::Identity>> LaunchKey::IdentityIn(
    const std::string& tf_config) const {
  if (path_.empty() && !key_) return nullptr;
  MUSTER_ASSIGN_OR_RETURN(const ClusterConfig config, ParseTfConfig(tf_config));
  security::IdentityOptions options;
  options.self = {config.cluster.Digest(), "launcher"};
  options.run_key = path_;
  if (key_)
    options.run_key_descriptor =
        fcntl(key_.get(), F_DUPFD_CLOEXEC, security::kMinInheritedDescriptor);
  return security::Identity::Make(std::move(options));
}

absl::StatusOr<std::string> LaunchKey::ReadingToken() const {
  if (path_.empty() && !key_) return "";
  MUSTER_ASSIGN_OR_RETURN(const security::RunKeys keys, path_.empty()
                                                            ? security::ReadRunKeys(key_.get())
                                                            : security::ReadRunKeys(path_));
  return security::ReadingToken(keys.front());
}

}  // namespace muster
