#include "deploy/commands/manifest_command.h"

#include <errno.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "common/base/files/created_files.h"
#include "common/base/files/files.h"
#include "common/base/json/ordered_json.h"
#include "common/base/json/utf8.h"
#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/job/job_checks.h"
#include "common/security/run_key.h"
#include "deploy/manifest/job_on_pods.h"
#include "deploy/manifest/objects.h"
#include "deploy/manifest/request_checks.h"

namespace muster {
namespace {

absl::StatusOr<std::string> ReadUtf8(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
  if (ValidUtf8(text) != text)
    return ConfigurationError(fmt::format("{} is not UTF-8, which a ConfigMap has to be", path));
  return text;
}

// Returns the keys of the job file and --set, before paths are resolved.
absl::StatusOr<Json> WrittenKeys(const std::string& path,
                                 const std::vector<std::string>& overrides) {
  MUSTER_ASSIGN_OR_RETURN(OrderedJson job, ReadOrderedJsonFile(path));
  for (const std::string& override : overrides)
    MUSTER_RETURN_IF_ERROR(ApplyOverride(override, &job));
  return Json(job);
}

// Returns the strategy of the job on this cluster. Reports an error here that otherwise every task
// would report.
absl::StatusOr<StrategyKind> StrategyOn(const Job& job, const ManifestRequest& request) {
  const Json config = {{"cluster", PodCluster(request).ToJson()},
                       {"task", {{"type", "chief"}, {"index", 0}}}};
  MUSTER_ASSIGN_OR_RETURN(const ClusterConfig cluster, ParseTfConfig(Dump(config)));
  MUSTER_ASSIGN_OR_RETURN(const StrategyKind strategy, StrategyFor(job, cluster));
  MUSTER_RETURN_IF_ERROR(CheckMembers(job, cluster.world_size().value_or(0)));
  return strategy;
}

// Writes the text to stdout. Returns an error if it cannot be written.
absl::Status WriteOutput(const std::string& text) {
  errno = 0;
  const bool whole = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && whole) return absl::OkStatus();
  return ConfigurationError(fmt::format("cannot write the output: {}", FileErrorText(errno)));
}

class ManifestCommand : public Command {
 public:
  CLI::App* Register(CLI::App& muster) override {
    CLI::App* app = muster.add_subcommand(
        "manifest", "Print the Kubernetes objects of a job, ready for kubectl apply -f -");
    app->add_option("--workers", request_.workers, "Number of workers, a chief is added")
        ->required()
        ->type_name("N");
    app->add_option("--ps", request_.ps, "Number of parameter servers")->type_name("N");
    app->add_option("--gpus", request_.gpus, "GPUs of each task that computes steps")
        ->type_name("N");
    app->add_option("--image", request_.image, "The image of the pods")
        ->required()
        ->type_name("NAME");
    app->add_option("--job", job_, "The job file")->required()->type_name("FILE");
    AddSet(app, &request_.overrides);
    app->add_option("--operator", operator_,
                    "What starts the pods: none (Kubernetes' own Jobs), tfjob (Kubeflow), jobset")
        ->type_name("NAME")
        ->capture_default_str()
        ->check(CLI::IsMember(std::vector<std::string>(std::begin(kManifestOperatorNames),
                                                       std::end(kManifestOperatorNames))));
    app->add_flag("--no-evaluator", no_evaluator_, "Leave the evaluator out");
    app->add_flag("--preflight", request_.preflight,
                  "The pods run muster preflight on the job's nodes, instead of the job");
    app->add_option("--key-file", key_file_, "The run key, for a Secret; without it you make one")
        ->type_name("FILE");
    app->add_option("--queue", request_.queue, "The Kueue queue that admits the run as a whole")
        ->type_name("NAME");
    app->add_option("--storage", request_.storage, "Size of the volume for model_dir")
        ->type_name("SIZE")
        ->capture_default_str();
    app->add_option("--storage-class", request_.storage_class, "Its storage class")
        ->type_name("NAME")
        ->default_str("the cluster's default");
    app->add_option("--tensorboard", request_.tensorboard,
                    "Add TensorBoard on that volume, from this image; needs --storage-class")
        ->type_name("IMAGE");
    return app;
  }

  int Run() override { return ReportStatus("manifest", Print()); }

 private:
  absl::Status Print() {
    // The cluster does not list the evaluator, so the other tasks' preflight would not wait for a
    // late evaluator.
    request_.evaluator = !no_evaluator_ && !request_.preflight;
    const auto* name =
        std::find(std::begin(kManifestOperatorNames), std::end(kManifestOperatorNames), operator_);
    request_.manifest_operator =
        static_cast<ManifestOperator>(name - std::begin(kManifestOperatorNames));
    MUSTER_RETURN_IF_ERROR(CheckRequest(request_));
    MUSTER_RETURN_IF_ERROR(ReadJob());
    MUSTER_RETURN_IF_ERROR(ReadKey());
    MUSTER_RETURN_IF_ERROR(WriteOutput(ManifestText(request_)));
    if (request_.run_key.empty())
      fmt::print(stderr,
                 "muster manifest: the pods wait for the Secret {0}: kubectl create secret generic "
                 "{0} --from-file=run.key, or give --key-file\n",
                 kRunKeySecret);
    return absl::OkStatus();
  }

  absl::Status ReadJob() {
    MUSTER_ASSIGN_OR_RETURN(const Job job, LoadJob(job_, request_.overrides));
    MUSTER_ASSIGN_OR_RETURN(const Json written, WrittenKeys(job_, request_.overrides));
    MUSTER_ASSIGN_OR_RETURN(const StrategyKind strategy, StrategyOn(job, request_));
    MUSTER_RETURN_IF_ERROR(CheckJobOnPods(written, job, request_));
    request_.chief_computes = strategy != StrategyKind::kParameterServer;
    MUSTER_ASSIGN_OR_RETURN(request_.job, ReadUtf8(job_));
    MUSTER_RETURN_IF_ERROR(CheckConfigMapSize(request_));
    PutModelDirOnVolume(job, job_, &request_);
    return absl::OkStatus();
  }

  absl::Status ReadKey() {
    if (key_file_.empty()) return absl::OkStatus();
    MUSTER_ASSIGN_OR_RETURN(const security::RunKeys keys, security::ReadRunKeys(key_file_));
    for (const security::Secret& key : keys) request_.run_key += security::FormatRunKey(key).text();
    return absl::OkStatus();
  }

  ManifestRequest request_;
  bool no_evaluator_ = false;
  std::string job_, key_file_;
  std::string operator_{kManifestOperatorNames[0]};
};

}  // namespace

std::unique_ptr<Command> MakeManifestCommand() { return std::make_unique<ManifestCommand>(); }

}  // namespace muster
