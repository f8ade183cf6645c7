#include "deploy/commands/key_command.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "common/cluster/cluster_config.h"
#include "common/security/authority.h"
#include "common/security/run_key.h"
#include "deploy/cluster_file.h"

namespace muster {
namespace {

class KeyCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "key",
        "Make the run key or certificates with which tasks prove that they belong to a cluster");
    app->require_subcommand(1);
    new_ = app->add_subcommand("new", "Write a new run key: copy it to each host of the cluster");
    new_->add_option("FILE", file_, "Where to")->default_str("~/.config/muster/run.key");
    certificates_ = app->add_subcommand(
        "certificates", "Write an authority, and a certificate and key for each task of a cluster");
    certificates_->add_option("CLUSTER", cluster_, "A file with the cluster as in TF_CONFIG")
        ->required()
        ->type_name("FILE");
    certificates_->add_option("--output", output_, "The folder to write to")
        ->type_name("DIR")
        ->capture_default_str();
    token_ = app->add_subcommand(
        "token", "Print the token of a run key with which /metrics and the status page are read");
    token_->add_option("--key-file", file_, "The run key")
        ->type_name("FILE")
        ->default_str("as a task finds it");
    return app;
  }

  int Run() override {
    const absl::Status done = new_->parsed() ? New() : token_->parsed() ? Token() : Certificates();
    return ReportStatus("key", done);
  }

 private:
  absl::Status New() {
    const std::string path = file_.empty() ? security::DefaultRunKeyPath() : file_;
    if (path.empty()) return ConfigurationError("HOME is not set: name the file to write");
    MUSTER_RETURN_IF_ERROR(security::WriteNewRunKey(path));
    fmt::print("wrote {}: copy it to each host of the cluster, readable only by its owner\n", path);
    return absl::OkStatus();
  }

  absl::Status Token() {
    const std::string path = security::RunKeyPath(file_);
    if (path.empty())
      return ConfigurationError("no run key was found: name its file with --key-file");
    MUSTER_ASSIGN_OR_RETURN(const security::RunKeys keys, security::ReadRunKeys(path));
    fmt::print("{}\n", security::ReadingToken(keys.front()));
    return absl::OkStatus();
  }

  absl::Status Certificates() {
    MUSTER_ASSIGN_OR_RETURN(const ClusterSpec cluster, ReadClusterFile(cluster_));
    MUSTER_ASSIGN_OR_RETURN(const security::Authority authority, security::Authority::Random());
    if (mkdir(output_.c_str(), 0700) != 0 && errno != EEXIST)
      return ConfigurationError(fmt::format("cannot make {}: {}", output_, strerror(errno)));
    MUSTER_RETURN_IF_ERROR(
        security::WriteNewFile(output_ + "/authority.pem", authority.certificate(), 0644));
    MUSTER_ASSIGN_OR_RETURN(std::string key, authority.PrivateKey());
    const absl::Status written = security::WriteNewFile(output_ + "/authority.key", key, 0600);
    OPENSSL_cleanse(key.data(), key.size());
    MUSTER_RETURN_IF_ERROR(written);
    for (const TaskId task : cluster.Tasks())
      MUSTER_RETURN_IF_ERROR(
          Write({cluster.Digest(), task.ToString()}, {cluster.AddressOf(task).host},
                fmt::format("{}-{}", TaskTypeName(task.type), task.index), authority));
    fmt::print(
        "wrote a certificate and a key for each of {} tasks to {}\n"
        "in the job file: \"tls\": {{\"certificate\": \"{}/{{type}}-{{index}}.pem\", \"key\": "
        "\"{}/{{type}}-{{index}}.key\", \"authority\": \"{}/authority.pem\"}}\n"
        "authority.key signs new ones: keep it elsewhere\n",
        cluster.Tasks().size(), output_, output_, output_, output_);
    return absl::OkStatus();
  }

  absl::Status Write(const security::Peer& whose, const std::vector<std::string>& hosts,
                     const std::string& name, const security::Authority& authority) {
    MUSTER_ASSIGN_OR_RETURN(const security::Credentials made,
                            authority.Issue(security::UriOf(whose), hosts));
    const std::string base = fmt::format("{}/{}", output_, name);
    MUSTER_RETURN_IF_ERROR(security::WriteNewFile(base + ".pem", made.certificate, 0644));
    return security::WriteNewFile(base + ".key", made.key, 0600);
  }

  CLI::App *new_ = nullptr, *certificates_ = nullptr, *token_ = nullptr;
  std::string file_, cluster_, output_ = "certificates";
};

}  // namespace

std::unique_ptr<Command> MakeKeyCommand() { return std::make_unique<KeyCommand>(); }

}  // namespace muster
