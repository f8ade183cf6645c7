#include "deploy/manifest_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json/ordered_json.h"
#include "common/cluster/cluster_config.h"
#include "common/data/job/job_data.h"
#include "common/job/job.h"
#include "common/job/job_checks.h"
#include "common/job/program_path.h"
#include "common/security/run_key.h"
#include "deploy/manifest/objects.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// TF_CONFIG is an environment variable, and Linux gives one 128 KiB.
constexpr int kMostTasks = 1000;

// "5Gi", or "5368709120".
bool IsQuantity(const std::string& text) {
  const size_t digits = text.find_first_not_of("0123456789");
  if (text.empty() || digits == 0) return false;
  const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  const std::vector<std::string> units = {"", "Ki", "Mi", "Gi", "Ti", "k", "M", "G", "T"};
  return std::find(units.begin(), units.end(), unit) != units.end();
}

absl::Status CheckSizes(const ManifestRequest& request) {
  for (const auto& [name, count] :
       {std::pair("workers", request.workers), {"ps", request.ps}, {"gpus", request.gpus}})
    if (count < 0)
      return ConfigurationError(fmt::format("--{} is {}: it must not be negative", name, count));
  if (!IsQuantity(request.storage))
    return ConfigurationError(fmt::format(
        "--storage is \"{}\": give a size as Kubernetes has it, such as 5Gi", request.storage));
  if (request.ps > 0 && request.workers == 0)
    return ConfigurationError(
        "parameter servers without workers would train nothing: give --workers 1 or more");
  if (request.members() > kMostTasks)
    return ConfigurationError(fmt::format(
        "{} tasks are more than the {} that TF_CONFIG has room for as an environment variable",
        request.members(), kMostTasks));
  if (!request.queue.empty() && request.manifest_operator == ManifestOperator::kNone)
    return ConfigurationError(
        "--queue needs --operator tfjob or jobset: Kueue admits Jobs one by one, and two runs "
        "could "
        "each wait for the rest of the other");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return ConfigurationError(fmt::format("cannot read {}", path));
  return text.str();
}

// The keys as they are written, with --set.
absl::StatusOr<Json> WrittenKeys(const std::string& path,
                                 const std::vector<std::string>& overrides) {
  MUSTER_ASSIGN_OR_RETURN(OrderedJson job, ReadOrderedJsonFile(path));
  for (const std::string& override : overrides)
    MUSTER_RETURN_IF_ERROR(ApplyOverride(override, &job));
  return Json(job);
}

// A pod has the job file in a folder of its own, and nothing beside it.
absl::Status CheckFiles(const Json& written, const Job& job) {
  const std::string program =
      ProgramFile(written.contains("program") ? written["program"] : Json());
  if (!program.empty() && !fs::path(program).is_absolute())
    return ConfigurationError(fmt::format(
        "program is \"{}\", a path beside the job file, which pods do not have: name its place in "
        "the image, as in --set program=/opt/job/{}",
        program, fs::path(program).filename().string()));
  const std::string folder = written.value("folder", "");
  if (fs::path(folder).is_absolute()) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const data::JobData data, data::ParseJobData(job.data));
  for (const auto& [key, file] : data::FilesOf(data))
    if (!fs::path(file).is_absolute())
      return ConfigurationError(
          fmt::format("{} is \"{}\", a path beside the job file, which pods do not have: name the "
                      "folder of the data in the image, as in --set folder=/opt/data",
                      key, file));
  return absl::OkStatus();
}

absl::Status CheckSecurity(const Job& job) {
  if (job.tls.certificate.empty()) return absl::OkStatus();
  return ConfigurationError(
      "tls.certificate is set, but the pods get a run key: --set tls={} leaves certificates out");
}

// What every task would say of this cluster is one sentence here.
absl::StatusOr<StrategyKind> StrategyOn(const Job& job, const ManifestRequest& request) {
  const Json config = {{"cluster", PodCluster(request).ToJson()},
                       {"task", {{"type", "chief"}, {"index", 0}}}};
  MUSTER_ASSIGN_OR_RETURN(const ClusterConfig cluster, ParseTfConfig(Dump(config)));
  MUSTER_ASSIGN_OR_RETURN(const StrategyKind strategy, StrategyFor(job, cluster));
  MUSTER_RETURN_IF_ERROR(CheckMembers(job, cluster.world_size().value_or(0)));
  return strategy;
}

// Checkpoints go to the volume, whatever folder the job file names.
void PutModelDirOnVolume(const Job& job, const std::string& job_file, ManifestRequest* request) {
  const fs::path named = fs::path(job.model_dir).lexically_normal();
  if (named.string().starts_with(std::string(kModelDirMount) + "/")) return;
  const fs::path folder = named.has_filename() ? named : named.parent_path();
  std::string name = folder.filename().string();
  if (name.empty() || name == "." || name == "..") name = fs::path(job_file).stem().string();
  request->overrides.push_back("model_dir=" +
                               Dump(Json(fmt::format("{}/{}", kModelDirMount, name))));
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
                    "Add TensorBoard on that volume, from this image")
        ->type_name("IMAGE");
    return app;
  }

  int Run() override {
    const absl::Status done = Print();
    return done.ok() ? 0 : ReportError("manifest", done);
  }

 private:
  absl::Status Print() {
    request_.evaluator = !no_evaluator_;
    const auto* name =
        std::find(std::begin(kManifestOperatorNames), std::end(kManifestOperatorNames), operator_);
    request_.manifest_operator =
        static_cast<ManifestOperator>(name - std::begin(kManifestOperatorNames));
    MUSTER_RETURN_IF_ERROR(CheckSizes(request_));
    MUSTER_RETURN_IF_ERROR(ReadJob());
    MUSTER_RETURN_IF_ERROR(ReadKey());
    fmt::print("{}", ManifestText(request_));
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
    MUSTER_RETURN_IF_ERROR(CheckFiles(written, job));
    MUSTER_RETURN_IF_ERROR(CheckSecurity(job));
    MUSTER_ASSIGN_OR_RETURN(const StrategyKind strategy, StrategyOn(job, request_));
    if (request_.gpus > 0 && job.devices.starts_with("cpu"))
      return ConfigurationError(
          fmt::format("--gpus is {}, but the job's devices is \"{}\": leave one of them out",
                      request_.gpus, job.devices));
    request_.chief_computes = strategy != StrategyKind::kParameterServer;
    MUSTER_ASSIGN_OR_RETURN(request_.job, ReadText(job_));
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
