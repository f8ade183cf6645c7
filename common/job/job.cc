#include "common/job/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "common/base/files/files.h"
#include "common/data/job/job_data.h"
#include "common/job/job_callbacks.h"
#include "common/job/job_checks.h"
#include "common/job/program_path.h"
#include "common/push_pull/options.h"

namespace muster {

namespace {

template <typename E>
struct Names;
template <>
struct Names<StrategyKind> {
  static constexpr auto& list = kStrategyNames;
};
template <>
struct Names<LossReduction> {
  static constexpr auto& list = kLossReductionNames;
};
template <>
struct Names<Precision> {
  static constexpr auto& list = kPrecisionNames;
};

// Lists all keys of a job. Reading a job, writing a job and messages about unknown keys use this
// list. Archive is Reader or Writer.
template <typename Archive>
void Fields(Archive& a, CheckpointOptions& o) {
  a("every_steps", o.every_steps);
  a("every_epochs", o.every_epochs);
  a("keep", o.keep);
  a("best", o.best);
  a("best_mode", o.best_mode);
}

template <typename Archive>
void Fields(Archive& a, EvaluateOptions& o) {
  a("batch_size", o.batch_size);
}

template <typename Archive>
void Fields(Archive& a, CollectiveOptions& o) {
  a("backend", o.backend);
  a("interface", o.interface);
  a("bucket_bytes", o.bucket_bytes);
  a("first_bucket_bytes", o.first_bucket_bytes);
}

template <typename Archive>
void Fields(Archive& a, Duration (&phases)[kNumPhases]) {
  for (int i = 0; i < kNumPhases; ++i) a(std::string(kPhaseNames[i]), phases[i]);
}

template <typename Archive>
void Fields(Archive& a, ElasticOptions& o) {
  a("min_workers", o.min_workers);
  a("grace", o.grace);
  a("spares", o.spares);
}

template <typename Archive>
void Fields(Archive& a, Timeouts& o) {
  a("join", o.join);
  a("rejoin", o.rejoin);
  a("resume", o.resume);
  a("heartbeat", o.heartbeat);
  a("abort", o.abort);
  a("formation", o.formation);
  a("collective", o.collective);
  a("evaluate", o.evaluate);
  a("end", o.end);
  a("bind", o.bind);
  a.Object("phase", o.phase);
}

template <typename Archive>
void Fields(Archive& a, TlsOptions& o) {
  a("enabled", o.enabled);
  a("certificate", o.certificate);
  a("key", o.key);
  a("authority", o.authority);
}

template <typename Archive>
void Fields(Archive& a, SecurityOptions& o) {
  a("key_file", o.key_file);
  a("insecure", o.insecure);
  a("file_mode", o.file_mode);
}

template <typename Archive>
void Fields(Archive& a, StatusOptions& o) {
  a("port", o.port);
  a("metrics_port", o.metrics_port);
  a("address", o.address);
}

template <typename Archive>
void Fields(Archive& a, SummaryOptions& o) {
  a("every_steps", o.every_steps);
  a("histograms_every_epochs", o.histograms_every_epochs);
}

template <typename Archive>
void Fields(Archive& a, Job& job) {
  a("program", job.program);
  a("program_args", job.program_args);
  a("folder", job.folder);
  a("data", job.data);
  a("strategy", job.strategy);
  a("global_batch_size", job.global_batch_size);
  a("per_replica_batch_size", job.per_replica_batch_size);
  a("epochs", job.epochs);
  a("max_steps", job.max_steps);
  a("steps_per_epoch", job.steps_per_epoch);
  a("accumulate_steps", job.accumulate_steps);
  a("drop_remainder", job.drop_remainder);
  a("seed", job.seed);
  a("model_dir", job.model_dir);
  a("restore", job.restore);
  a("devices", job.devices);
  a("precision", job.precision);
  a("deterministic", job.deterministic);
  a("load", job.load);
  a("loss_reduction", job.loss_reduction);
  a("optimizer", job.optimizer);
  a("learning_rate", job.learning_rate);
  a("embeddings", job.embeddings);
  a.Object("checkpoint", job.checkpoint);
  a.Object("summary", job.summary);
  a.Object("evaluate", job.evaluate);
  a("callbacks", job.callbacks);
  a.Object("collective", job.collective);
  a("parameter_server", job.parameter_server);
  a.Object("elastic", job.elastic);
  a.Object("timeouts", job.timeouts);
  a.Object("tls", job.tls);
  a.Object("security", job.security);
  a.Object("status", job.status);
  a("digests", job.digests);
}

// Reads one JSON object into the fields of a struct. Keeps the first error, including those of
// inner objects.
class Reader {
 public:
  Reader(const Json& json, std::string path)
      : json_(json), path_(std::move(path)), object_(json, path_) {}

  template <typename T>
  void operator()(const std::string& key, T& field) {
    object_.Read(key, &field);
  }
  template <typename T>
  void operator()(const std::string& key, std::optional<T>& field) {
    if (!object_.Has(key)) {
      object_.Read(key, &unused_);  // The key is null or absent. Marks it as known.
      return;
    }
    T value{};
    (*this)(key, value);
    field = value;
  }
  void operator()(const std::string& key, Duration& field) {
    double seconds = Seconds(field);
    object_.Read(key, &seconds);
    if (!(seconds >= kMinTimeout && seconds <= kMaxTimeout)) {
      object_.Fail(key, fmt::format("must be a number of seconds from {} to {} (a year), is {}",
                                    kMinTimeout, kMaxTimeout, seconds));
      return;
    }
    field = FromSeconds(seconds);
  }
  void operator()(const std::string& key, LossReduction& field) { ReadName(key, field); }
  void operator()(const std::string& key, Precision& field) { ReadName(key, field); }
  void operator()(const std::string& key, StrategyKind& field) { ReadName(key, field); }

  template <typename T>
  void Object(const std::string& key, T& fields) {
    object_.Read(key, &unused_);
    if (!object_.Has(key)) return;
    Reader inner(json_.at(key), path_.empty() ? key : path_ + "." + key);
    Fields(inner, fields);
    if (const absl::Status status = inner.Finish(); inner_.ok()) inner_ = status;
  }

  absl::Status Finish() {
    MUSTER_RETURN_IF_ERROR(object_.Finish());
    return inner_;
  }

 private:
  static constexpr double kMinTimeout = 0.001, kMaxTimeout = 31536000;

  template <typename E>
  void ReadName(const std::string& key, E& field) {
    std::string name;
    object_.Read(key, &name);
    if (!object_.Has(key) || !json_.at(key).is_string()) return;
    const auto& names = Names<E>::list;
    const auto it = std::find(std::begin(names), std::end(names), name);
    if (it != std::end(names)) {
      field = static_cast<E>(it - std::begin(names));
      return;
    }
    object_.Fail(key, UnknownName(name, {std::begin(names), std::end(names)}));
  }

  const Json& json_;
  const std::string path_;
  JsonObject object_;
  absl::Status inner_;
  Json unused_;
};

class Writer {
 public:
  template <typename T>
  void operator()(const std::string& key, const T& field) {
    json_[key] = field;
  }
  template <typename T>
  void operator()(const std::string& key, const std::optional<T>& field) {
    json_[key] = nullptr;
    if (field) (*this)(key, *field);
  }
  void operator()(const std::string& key, const Duration& field) { json_[key] = Seconds(field); }
  void operator()(const std::string& key, LossReduction field) { WriteName(key, field); }
  void operator()(const std::string& key, Precision field) { WriteName(key, field); }
  void operator()(const std::string& key, StrategyKind field) { WriteName(key, field); }

  template <typename T>
  void Object(const std::string& key, T& fields) {
    Writer inner;
    Fields(inner, fields);
    json_[key] = std::move(inner.json_);
  }
  Json Take() { return std::move(json_); }

 private:
  template <typename E>
  void WriteName(const std::string& key, E field) {
    json_[key] = Names<E>::list[static_cast<int>(field)];
  }

  Json json_ = Json::object();
};

}  // namespace

absl::StatusOr<Job> JobFromJson(const Json& json) {
  Job job;
  Reader reader(json, "");
  Fields(reader, job);
  MUSTER_RETURN_IF_ERROR(reader.Finish());
  MUSTER_RETURN_IF_ERROR(CheckJob(job));
  push_pull::RenameParameterServerKeys(&job.parameter_server);
  MUSTER_RETURN_IF_ERROR(ApplyCallbacks(&job));
  return job;
}

Json JobToJson(const Job& job) {
  Job copy = job;
  Writer writer;
  Fields(writer, copy);
  return writer.Take();
}

absl::StatusOr<Job> LoadJob(const std::string& path, const std::vector<std::string>& overrides) {
  MUSTER_ASSIGN_OR_RETURN(OrderedJson json, ReadOrderedJsonFile(path));
  for (const std::string& override : overrides) {
    MUSTER_RETURN_IF_ERROR(ApplyOverride(override, &json));
  }
  data::NoteColumnOrder(&json);
  absl::StatusOr<Job> job = JobFromJson(json);
  if (!job.ok()) return Annotate(job.status(), path + ": ");
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  job->folder = job->folder.empty() ? folder : PathFrom(folder, job->folder);
  job->digests = Json::object();
  // A program's path is relative to the job file, not to job->folder, which is for data.
  ResolveProgramFile(folder, &job->program);
  return job;
}

absl::StatusOr<StrategyKind> StrategyFor(const Job& job, const ClusterConfig& cluster) {
  StrategyKind kind = StrategyKind::kMirrored;
  if (job.strategy) {
    kind = *job.strategy;
  } else if (!cluster.cluster.ps.empty()) {
    kind = StrategyKind::kParameterServer;
  } else if (cluster.world_size().value_or(1) > 1) {
    kind = StrategyKind::kMultiWorkerMirrored;
  }
  MUSTER_RETURN_IF_ERROR(CheckStrategy(cluster, kind));
  if (kind == StrategyKind::kParameterServer) {
    MUSTER_ASSIGN_OR_RETURN(const push_pull::ParameterServerOptions options,
                            push_pull::ParseParameterServer(job.parameter_server));
    // A run of an older version may continue with ps tasks. For other runs the chief, which knows
    // model_dir, refuses the job.
    if (options.max_staleness == 0) return StrategyKind::kMultiWorkerMirrored;
    if (job.elastic.spares > 0)
      return ConfigurationError(fmt::format(
          "elastic.spares is {}, but the strategy is parameter_server, in which workers "
          "join and leave without spares: leave it out",
          job.elastic.spares));
    if (const size_t servers = cluster.cluster.ps.size();
        options.copies > static_cast<int64_t>(servers))
      return ConfigurationError(
          fmt::format("parameter_server.copies is {}, but the cluster has {} ps task{}: set it "
                      "to 1, or add ps tasks",
                      options.copies, servers, servers == 1 ? "" : "s"));
  }
  return kind;
}

}  // namespace muster
