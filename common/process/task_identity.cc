#include "common/process/task_identity.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "common/base/files/files.h"
#include "common/base/logging.h"

namespace muster {
std::string PathOfTask(std::string path, std::string_view type, int index,
                       const std::string& folder) {
  const auto replace = [&path](const std::string& what, const std::string& with) {
    for (size_t at = 0; (at = path.find(what, at)) != std::string::npos; at += with.size())
      path.replace(at, what.size(), with);
  };
  replace("{type}", std::string(type));
  replace("{index}", std::to_string(index));
  return PathFrom(folder, path);
}

std::string FirstRemoteHost(const ClusterSpec& cluster) {
  for (const TaskId task : cluster.Tasks())
    if (const Address& address = cluster.AddressOf(task); !IsLoopback(address)) return address.host;
  return "";
}

namespace {

// Returns nullopt if the task needs no identity.
absl::StatusOr<std::optional<security::IdentityOptions>> OptionsFor(const ClusterConfig& cluster,
                                                                    const Job& job) {
  if (cluster.local()) return std::nullopt;
  security::IdentityOptions options;
  options.self = {cluster.cluster.Digest(), cluster.task->ToString()};
  const auto path = [&](const std::string& text) {
    return text.empty() ? text
                        : PathOfTask(text, TaskTypeName(cluster.task->type), cluster.task->index,
                                     job.folder);
  };
  if (!job.tls.certificate.empty()) {
    options.files = {path(job.tls.certificate), path(job.tls.key), path(job.tls.authority)};
    for (const TaskId task : cluster.cluster.Tasks())
      options.hosts[task.ToString()] = cluster.cluster.AddressOf(task).host;
    return options;
  }
  options.run_key = path(job.security.key_file);
  if (options.run_key.empty()) options.run_key_descriptor = security::TakeRunKeyDescriptor();
  if (options.run_key.empty() && !options.run_key_descriptor) {
    if (job.security.insecure) {
      LogWarning(
          "security.insecure: tasks do not prove their identity, and connections are not "
          "encrypted; every host that reaches the ports of this cluster can end the job, read its "
          "weights and change them");
      return std::nullopt;
    }
    options.run_key = security::RunKeyPath("");
  }
  if (!options.run_key.empty() || options.run_key_descriptor) return options;
  const std::string remote = FirstRemoteHost(cluster.cluster);
  if (remote.empty()) return std::nullopt;
  return ConfigurationError(fmt::format(
      "the cluster has an address that is not loopback ({}), but its tasks have no key to prove "
      "their identity: make a key with `muster key new` and copy the file to each host, or set "
      "tls.certificate, tls.key and "
      "tls.authority in the job file, or set security.insecure to true where the network is "
      "trusted",
      remote));
}

}  // namespace

absl::StatusOr<std::shared_ptr<security::Identity>> IdentityFor(const ClusterConfig& cluster,
                                                                const Job& job) {
  MUSTER_ASSIGN_OR_RETURN(auto options, OptionsFor(cluster, job));
  if (!options) return nullptr;
  return security::Identity::Make(*std::move(options));
}

absl::StatusOr<std::shared_ptr<security::Identity>> IdentityOfTask(const ClusterConfig& cluster,
                                                                   const Job& job) {
  MUSTER_ASSIGN_OR_RETURN(auto options, OptionsFor(cluster, job));
  if (!options) return nullptr;
  const bool passed_on = options->run_key_descriptor.has_value();
  const std::string with = options->run_key.empty()
                               ? fmt::format("the certificate {}", options->files.certificate)
                               : fmt::format("the run key {}", options->run_key);
  MUSTER_ASSIGN_OR_RETURN(auto identity, security::Identity::Make(*std::move(options)));
  // A launcher's own key is nothing that a user could mistake.
  if (!passed_on)
    LogInfo("this task proves its identity with {} ({})", with, identity->Authorities().front());
  return identity;
}

}  // namespace muster
