#include "common/job/job_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "common/base/files/created_files.h"
#include "common/base/json/utf8.h"
#include "common/data/job/job_data.h"
#include "common/job/job.h"
#include "common/job/job_callbacks.h"
#include "common/job/load_spec.h"
#include "common/job/program_path.h"
#include "common/push_pull/options.h"

namespace muster {
namespace {

using push_pull::ParseParameterServer;

constexpr int kMaxCpuReplicas = 1024;
const std::vector<std::string> kBackends = {"auto", "nccl", "tcp", "shared_memory", "hierarchical"};
const std::vector<std::string> kBestModes = {"auto", "min", "max"};

// Runs checks and keeps the first error.
class Checks {
 public:
  void AtLeast(int64_t least, const char* key, int64_t value) {
    if (value < least) Fail(key, fmt::format("must be at least {}, is {}", least, value));
  }
  void AtLeast(int64_t least, const char* key, const std::optional<int64_t>& value) {
    if (value) AtLeast(least, key, *value);
  }
  void Fail(std::string_view key, std::string_view what) {
    Add(ConfigurationError(fmt::format("{} {}", key, what)));
  }
  void Add(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }
  absl::Status status() const { return status_; }

 private:
  absl::Status status_;
};

template <typename AnyJson>
std::string Kind(const AnyJson& json) {
  return json.is_string() ? json.dump() : json.type_name();
}

std::optional<int> ParseNumber(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Returns the number of replicas that `devices` requests, or 0 if the number depends on the
// machine. Returns nullopt for a syntax error.
std::optional<int> CountDevices(std::string_view devices) {
  if (devices == "auto" || devices == "cuda") return 0;
  if (devices == "cpu") return 1;
  if (devices.rfind("cpu:", 0) == 0) {
    const auto count = ParseNumber(devices.substr(4));
    return count && *count >= 1 && *count <= kMaxCpuReplicas ? count : std::nullopt;
  }
  if (devices.rfind("cuda:", 0) != 0) return std::nullopt;
  devices.remove_prefix(5);
  std::set<int> seen;
  while (true) {
    const size_t comma = devices.find(',');
    const auto index = ParseNumber(devices.substr(0, comma));
    if (!index || !seen.insert(*index).second) return std::nullopt;
    if (comma == std::string_view::npos) return static_cast<int>(seen.size());
    devices.remove_prefix(comma + 1);
  }
}

void CheckProgram(const Job& job, Checks* checks) {
  const Json& program = job.program;
  if (program.is_null()) {
    checks->Fail("program", "is missing: name a built-in program such as \"fashion_mnist\"");
  } else if (program.is_string() ? program.get_ref<const std::string&>().empty()
                                 : !program.is_object() || program.empty()) {
    checks->Fail("program",
                 fmt::format("must be a program's name, the path of a plugin or an object such as "
                             "{{\"exported\": PATH, ...}}, is {}",
                             program.empty() ? "empty" : Kind(program)));
  }
  if (!job.program_args.is_object()) {
    checks->Fail("program_args", fmt::format("must be an object, is {}", Kind(job.program_args)));
  }
}

void CheckDevices(const Job& job, Checks* checks) {
  const auto replicas = CountDevices(job.devices);
  if (!replicas) {
    checks->Fail("devices", fmt::format("must be auto, cpu, cpu:N (N from 1 to {}), cuda, or cuda: "
                                        "and different device numbers (cuda:0,1), is {}",
                                        kMaxCpuReplicas, Json(job.devices).dump()));
  } else if (*replicas > 1 && job.strategy == StrategyKind::kOneDevice) {
    checks->Fail("devices", fmt::format("is \"{}\", but strategy is \"one_device\": name one "
                                        "device, or set strategy to \"mirrored\"",
                                        job.devices));
  }
}

// Accepts a number, a schedule with a name, or an object with a schedule for each optimizer. The
// training library checks the rest.
void CheckLearningRate(const Json& rate, Checks* checks) {
  if (rate.is_number() ? rate.get<double>() >= 0 : rate.is_null() || rate.is_object()) return;
  checks->Fail("learning_rate", fmt::format("must be a number not below 0, or an object such as "
                                            "{{\"name\": \"cosine\", ...}}, is {}",
                                            rate.is_number() ? rate.dump() : Kind(rate)));
}

// Checks the options of checkpoints, summaries, callbacks, collectives, parameter servers and
// elastic training.
void CheckOptions(const Job& job, Checks* checks) {
  checks->AtLeast(1, "checkpoint.every_steps", job.checkpoint.every_steps);
  checks->AtLeast(1, "checkpoint.every_epochs", job.checkpoint.every_epochs);
  checks->AtLeast(1, "checkpoint.keep", job.checkpoint.keep);
  const std::string& mode = job.checkpoint.best_mode;
  if (std::find(kBestModes.begin(), kBestModes.end(), mode) == kBestModes.end()) {
    checks->Fail("checkpoint.best_mode", UnknownName(mode, kBestModes));
  }
  checks->AtLeast(1, "summary.every_steps", job.summary.every_steps);
  checks->AtLeast(0, "summary.histograms_every_epochs", job.summary.histograms_every_epochs);
  if (!job.callbacks.is_array()) {
    checks->Fail("callbacks", fmt::format("must be a list, is {}", Kind(job.callbacks)));
  }
  const std::string& backend = job.collective.backend;
  if (std::find(kBackends.begin(), kBackends.end(), backend) == kBackends.end()) {
    checks->Fail("collective.backend", UnknownName(backend, kBackends));
  }
  checks->AtLeast(1, "collective.bucket_bytes", job.collective.bucket_bytes);
  checks->AtLeast(1, "collective.first_bucket_bytes", job.collective.first_bucket_bytes);
  checks->Add(ParseParameterServer(job.parameter_server).status());
  checks->AtLeast(1, "elastic.min_workers", job.elastic.min_workers);
  checks->AtLeast(0, "elastic.spares", job.elastic.spares);
}

void CheckTls(const TlsOptions& tls, Checks* checks) {
  if (!tls.enabled && tls.certificate.empty() && tls.key.empty() && tls.authority.empty()) return;
  for (const auto& [key, path] :
       {std::pair<const char*, const std::string&>{"tls.certificate", tls.certificate},
        {"tls.key", tls.key},
        {"tls.authority", tls.authority}}) {
    if (path.empty()) checks->Fail(key, "is missing, but TLS is asked for: name a PEM file");
  }
}

void CheckSecurity(const SecurityOptions& security, Checks* checks) {
  const std::vector<std::string> modes(std::begin(kFileModeNames), std::end(kFileModeNames));
  if (std::find(modes.begin(), modes.end(), security.file_mode) == modes.end())
    checks->Fail("security.file_mode", UnknownName(security.file_mode, modes));
  if (security.insecure && !security.key_file.empty())
    checks->Fail("security.insecure",
                 "is true, but security.key_file is set: leave one of them out");
}

void CheckStatus(const StatusOptions& status, Checks* checks) {
  for (const auto& [key, port] : {std::pair<const char*, int64_t>{"status.port", status.port},
                                  {"status.metrics_port", status.metrics_port}}) {
    if (port < 0 || port > 65535)
      checks->Fail(key, fmt::format("must be a port from 1 to 65535, or 0 for none, is {}", port));
  }
  if (status.address.empty()) checks->Fail("status.address", "must be an IP address, is empty");
}

const std::set<std::string> kHostLocal = {
    "folder",        "devices",           "tls.certificate",   "tls.key",
    "tls.authority", "security.key_file", "security.insecure", "collective.interface",
    "status"};

std::string Difference(const Json& a, const Json& b, const std::string& path) {
  if (a == b || kHostLocal.contains(path)) return "";
  const auto inner = [&path](const std::string& key) {
    return path.empty() ? key : path + "." + key;
  };
  if (a.is_object() && b.is_object()) {
    for (const Json* side : {&a, &b}) {
      for (const auto& [key, value] : side->items()) {
        // A task that does not read a file, such as a ps, has no digest of it.
        if (path == "digests" && !(a.contains(key) && b.contains(key))) continue;
        const std::string found =
            Difference(a.value(key, Json()), b.value(key, Json()), inner(key));
        if (!found.empty()) return found;
      }
    }
    return "";
  }
  if (a.is_array() && b.is_array() && a.size() == b.size()) {
    for (size_t i = 0; i < a.size(); ++i) {
      const std::string found = Difference(a[i], b[i], fmt::format("{}[{}]", path, i));
      if (!found.empty()) return found;
    }
    return "";
  }
  return path.empty() ? "job" : path;
}

// Returns the JSON value, or the text itself if it is not JSON.
OrderedJson ParseValue(const std::string& text) {
  const absl::StatusOr<OrderedJson> value = ParseOrderedJson(text, "--set");
  return value.ok() ? *value : OrderedJson(text);
}

}  // namespace

absl::Status CheckMembers(const Job& job, int members) {
  const auto least = job.elastic.min_workers;
  const int64_t spares = job.elastic.spares;
  if (spares >= members)
    return ConfigurationError(
        fmt::format("elastic.spares is {}, but the cluster has {} members (chief and workers)",
                    spares, members));
  if (!least || *least <= members - spares) return absl::OkStatus();
  return ConfigurationError(
      fmt::format("elastic.min_workers is {}, but the cluster has {} members (chief and workers){}",
                  *least, members, spares == 0 ? "" : fmt::format(", {} of them spares", spares)));
}

absl::Status CheckDeterministic(const Job& job) {
  if (!job.deterministic || job.strategy != StrategyKind::kParameterServer) return absl::OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const push_pull::ParameterServerOptions options,
                          ParseParameterServer(job.parameter_server));
  // Accepts max_staleness 0, because runs of an older version have it and can still be inspected
  // and exported. CheckMaxStaleness refuses it for training.
  if (options.max_staleness == 0) return absl::OkStatus();
  return ConfigurationError(
      "deterministic is true, but strategy is \"parameter_server\", in which updates come in "
      "another "
      "order in each run: set strategy to \"multi_worker_mirrored\", or deterministic to false");
}

absl::Status CheckMaxStaleness(const Job& job) {
  MUSTER_ASSIGN_OR_RETURN(const push_pull::ParameterServerOptions options,
                          ParseParameterServer(job.parameter_server));
  if (options.max_staleness != 0) return absl::OkStatus();
  return ConfigurationError(
      "parameter_server.max_staleness is 0, which is synchronous training: set strategy to "
      "\"multi_worker_mirrored\" and start the cluster without ps tasks, with the same model_dir "
      "to continue a run, or set max_staleness to 1 or more");
}

absl::Status CheckJob(const Job& job) {
  Checks checks;
  CheckProgram(job, &checks);
  checks.Add(data::ParseJobData(job.data).status());
  checks.AtLeast(1, "global_batch_size", job.global_batch_size);
  checks.AtLeast(1, "per_replica_batch_size", job.per_replica_batch_size);
  if (job.global_batch_size && job.per_replica_batch_size) {
    checks.Fail("global_batch_size",
                "and per_replica_batch_size are both given: keep one (null removes the other)");
  }
  checks.AtLeast(1, "epochs", job.epochs);
  checks.AtLeast(1, "max_steps", job.max_steps);
  checks.AtLeast(1, "steps_per_epoch", job.steps_per_epoch);
  checks.AtLeast(1, "accumulate_steps", job.accumulate_steps);
  checks.AtLeast(1, "evaluate.batch_size", job.evaluate.batch_size);
  if (job.restore.empty()) checks.Fail("restore", "is empty: set it to auto, never or a path");
  CheckDevices(job, &checks);
  if (!job.optimizer.is_null() && !job.optimizer.is_string() && !job.optimizer.is_object()) {
    checks.Fail("optimizer", fmt::format("must be a name, or an object such as {{\"name\": "
                                         "\"adam\", ...}}, is {}",
                                         Kind(job.optimizer)));
  }
  CheckLearningRate(job.learning_rate, &checks);
  CheckOptions(job, &checks);
  if (!job.digests.is_object())
    checks.Fail("digests", fmt::format("must be an object, is {}", Kind(job.digests)));
  CheckTls(job.tls, &checks);
  CheckStatus(job.status, &checks);
  CheckSecurity(job.security, &checks);
  MUSTER_RETURN_IF_ERROR(checks.status());
  MUSTER_RETURN_IF_ERROR(CheckDeterministic(job));
  MUSTER_RETURN_IF_ERROR(CheckCallbackNames(job.callbacks));
  MUSTER_RETURN_IF_ERROR(ParseLoad(job.load).status());
  const bool restores_path = job.restore != "auto" && job.restore != "never";
  if (restores_path && job.load.is_object() && !job.load.empty()) {
    return ConfigurationError(
        fmt::format("restore is '{}', and load is given: a restored checkpoint has all weights; "
                    "keep one of them",
                    job.restore));
  }
  return absl::OkStatus();
}

absl::Status ApplyOverride(const std::string& argument, OrderedJson* job) {
  // A command line may contain invalid UTF-8, with which a Json cannot be printed.
  const std::string assignment = ValidUtf8(argument);
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    return ConfigurationError(
        fmt::format("--set {} is no assignment: write --set key=value", Json(assignment).dump()));
  }
  OrderedJson* place = job;
  std::string_view rest = std::string_view(assignment).substr(0, equals);
  const std::string whole(rest);
  std::string path;
  while (true) {
    if (place->is_null()) *place = OrderedJson::object();
    if (!place->is_object()) {
      return ConfigurationError(fmt::format(
          "--set {}: {} is no object, so it has no keys", whole,
          path.empty() ? "the job" : fmt::format("{} is {}, which", path, Kind(*place))));
    }
    const size_t dot = rest.find('.');
    const std::string key(rest.substr(0, dot));
    if (key.empty()) {
      return ConfigurationError(
          fmt::format("--set {} has an empty part in its key: write --set key.inner=value", whole));
    }
    path += path.empty() ? key : "." + key;
    place = &(*place)[key];
    if (dot == std::string_view::npos) break;
    rest.remove_prefix(dot + 1);
  }
  *place = ParseValue(assignment.substr(equals + 1));
  return absl::OkStatus();
}

std::string FirstDifferingFile(const Json& job, const Json& other) {
  constexpr char kDigests[] = "digests";
  return Difference(job.value(kDigests, Json::object()), other.value(kDigests, Json::object()),
                    kDigests);
}

std::string FirstDifference(const Json& job, const Json& other) {
  Json mine = job, theirs = other;
  // The digests compare the contents of program files instead.
  const auto file = [](const Json& one) { return ProgramFile(one.value("program", Json())); };
  if (!file(mine).empty() && !file(theirs).empty()) {
    for (Json* one : {&mine, &theirs}) {
      (*one)["program"] = WithProgramFile(one->at("program"), "");
    }
  }
  // Hosts may load their examples in different ways and from different folders.
  for (Json* one : {&mine, &theirs}) {
    const auto data = one->find("data");
    if (data == one->end() || !data->is_object()) continue;
    for (const char* key : {"threads", "prefetch"}) data->erase(key);
    for (Json& split : *data)
      if (split.is_object()) split.erase("cache");
    // An empty "data" is the same as none.
    if (data->empty()) *data = nullptr;
  }
  return Difference(mine, theirs, "");
}

}  // namespace muster
