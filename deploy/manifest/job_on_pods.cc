#include "deploy/manifest/job_on_pods.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <string_view>
#include <vector>

#include "common/data/job/job_data.h"
#include "common/job/load_spec.h"
#include "common/job/program_path.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr char kWritable[] = "/tmp/";

std::string WrittenText(const Json& written, const char* key) {
  const auto at = written.find(key);
  return at != written.end() && at->is_string() ? at->get<std::string>() : "";
}

absl::Status NotOnPods(std::string_view key, const std::string& path, std::string_view remedy) {
  return ConfigurationError(fmt::format(
      "{} is \"{}\", a path beside the job file, which pods do not have: {}", key, path, remedy));
}

absl::Status CheckProgram(const Json& written) {
  const std::string program =
      ProgramFile(written.contains("program") ? written["program"] : Json());
  if (program.empty() || fs::path(program).is_absolute()) return absl::OkStatus();
  return NotOnPods("program", program,
                   fmt::format("name its place in the image, as in --set program=/opt/job/{}",
                               fs::path(program).filename().string()));
}

// Checks the files whose paths are relative to `folder`.
absl::Status CheckInputs(const Json& written, const Job& job) {
  const std::string folder = WrittenText(written, "folder");
  const bool has_folder = fs::path(folder).is_absolute();
  constexpr char kRemedy[] =
      "name the folder of the data in the image, as in --set folder=/opt/data";
  MUSTER_ASSIGN_OR_RETURN(const data::JobData data, data::ParseJobData(job.data));
  for (const auto& [key, file] : data::FilesOf(data))
    if (!has_folder && !fs::path(file).is_absolute()) return NotOnPods(key, file, kRemedy);
  MUSTER_ASSIGN_OR_RETURN(const std::vector<LoadSpec> loads, ParseLoad(job.load));
  for (const LoadSpec& load : loads)
    if (!has_folder && !fs::path(load.path).is_absolute())
      return NotOnPods(load.where, load.path, kRemedy);
  for (const data::DataSplit& split : data) {
    const std::string& cache = split.cache.folder;
    const std::string path = (fs::path(folder) / cache).lexically_normal();
    if (!cache.empty() && !fs::path(cache).is_absolute() && !path.starts_with(kWritable))
      return ConfigurationError(
          fmt::format("{}.cache is in \"{}\", but pods write below /tmp: name a folder there",
                      split.key, cache));
  }
  return absl::OkStatus();
}

absl::Status CheckRestore(const Job& job) {
  const bool path = job.restore != "auto" && job.restore != "never";
  if (!path || fs::path(job.restore).is_absolute()) return absl::OkStatus();
  return ConfigurationError(fmt::format(
      "restore is \"{}\", a path of this host's folder, which pods do not have: name its place in "
      "the image or on the volume, as in --set restore={}/run/checkpoints",
      job.restore, kModelDirMount));
}

absl::Status CheckSecurity(const Job& job) {
  if (!job.tls.certificate.empty())
    return ConfigurationError(
        "tls.certificate is set, but the pods get a run key: --set tls={} leaves certificates out");
  if (job.security.insecure)
    return ConfigurationError(
        "security.insecure is true, but the pods get a run key: --set security.insecure=false "
        "leaves it out");
  if (job.security.key_file.empty() || job.security.key_file == kRunKeyFile)
    return absl::OkStatus();
  return ConfigurationError(
      fmt::format("security.key_file is \"{}\", but the pods have the run key in {}: --set "
                  "security.key_file=null leaves it out",
                  job.security.key_file, kRunKeyFile));
}

// Returns the number of replicas of a pod: that of `devices`, or the pod's number of GPUs if
// `devices` has no number.
absl::StatusOr<int> ReplicasOn(const Job& job, int gpus) {
  std::string_view rest = job.devices;
  const auto number = [&rest] {
    int value = 0;
    const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), value).ptr;
    rest.remove_prefix(end - rest.data());
    return value;
  };
  if (rest.starts_with("cpu")) {
    if (gpus > 0)
      return ConfigurationError(
          fmt::format("--gpus is {}, but the job's devices is \"{}\": leave one of them out", gpus,
                      job.devices));
    if (rest == "cpu") return 1;
    rest.remove_prefix(4);
    return number();
  }
  if (gpus == 0 && rest.starts_with("cuda"))
    return ConfigurationError(fmt::format(
        "devices is \"{}\", but the pods have no GPU: give --gpus, or --set devices=auto",
        job.devices));
  if (rest == "auto" || rest == "cuda") return gpus == 0 ? 1 : gpus;
  int count = 0;
  for (rest.remove_prefix(5); !rest.empty(); rest.remove_prefix(rest.empty() ? 0 : 1), ++count)
    if (const int index = number(); index >= gpus)
      return ConfigurationError(
          fmt::format("devices is \"{}\", but a pod with --gpus {} has no GPU {}: it numbers its "
                      "own from 0",
                      job.devices, gpus, index));
  return count;
}

absl::Status CheckDevices(const Job& job, const ManifestRequest& request) {
  MUSTER_ASSIGN_OR_RETURN(const int replicas, ReplicasOn(job, request.gpus));
  if (request.ps == 0 || replicas == 1) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("with parameter servers each worker has one replica, and these pods would have "
                  "{}: give --gpus 1 on GPUs or --set devices=cpu, and more --workers",
                  replicas));
}

}  // namespace

absl::Status CheckJobOnPods(const Json& written, const Job& job, const ManifestRequest& request) {
  MUSTER_RETURN_IF_ERROR(CheckProgram(written));
  MUSTER_RETURN_IF_ERROR(CheckInputs(written, job));
  MUSTER_RETURN_IF_ERROR(CheckRestore(job));
  MUSTER_RETURN_IF_ERROR(CheckSecurity(job));
  return CheckDevices(job, request);
}

void PutModelDirOnVolume(const Job& job, const std::string& job_file, ManifestRequest* request) {
  fs::path folder = fs::path(job.model_dir).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const std::string mount = kModelDirMount;
  std::string place = folder.string();
  if (!place.starts_with(mount + "/")) {
    std::string name = folder.filename().string();
    if (name.empty() || name == "." || name == "..") name = fs::path(job_file).stem().string();
    place = mount + "/" + name;
  }
  if (place != job.model_dir) request->overrides.push_back("model_dir=" + Dump(Json(place)));
}

}  // namespace muster
