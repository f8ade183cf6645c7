// The job file (docs/job_file.md; design 3.3): one struct, read once in main and passed down.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/phase.h"
#include "common/cluster/cluster_config.h"
#include "common/cluster/strategy_kind.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster {

// The divisor that turns the sum of per-example losses into the objective. kGlobal: the examples of
// the actual global batch. kNominal: global_batch_size. kLocalMean: replicas x local batch, which
// is TensorFlow's default.
enum class LossReduction { kGlobal, kNominal, kLocalMean };
inline constexpr std::string_view kLossReductionNames[] = {"global", "nominal", "local_mean"};
enum class Precision { kFloat32, kBFloat16, kFloat16 };
inline constexpr std::string_view kPrecisionNames[] = {"float32", "bfloat16", "float16"};

// Intervals between checkpoints. With neither interval, each epoch is saved. The end of the job and
// an agreed stop are always saved.
struct CheckpointOptions {
  std::optional<int64_t> every_steps, every_epochs;
  int keep = 3;  // The number of newest checkpoints to keep.
  // The metric of the evaluator, or else of validation, that selects the best checkpoint.
  std::string best = "loss";
  std::string best_mode = "auto";  // min | max | auto. auto: min for losses and errors, else max.
  // Selects the best checkpoint by the epoch's training metrics instead. Set if a model_checkpoint
  // callback monitors a metric without "val_".
  bool best_of_training = false;
};

struct SummaryOptions {
  int64_t every_steps = 50;             // Scalars and images.
  int64_t histograms_every_epochs = 0;  // For every parameter. 0: never.
};

struct EvaluateOptions {
  // Examples that a replica takes at once in a pass. Absent: as many as in training.
  std::optional<int64_t> batch_size;
};

struct CollectiveOptions {
  std::string backend = "auto";  // auto | nccl | tcp | shared_memory | hierarchical
  // Name of a network interface. Empty: the interface of the control connection.
  std::string interface;
  int64_t bucket_bytes = 25 << 20;
  int64_t first_bucket_bytes = 1 << 20;
};

// Elastic training: continue with fewer members after a loss, and grow back.
struct ElasticOptions {
  // The minimum number of members, including the chief. Absent: training waits for the declared
  // number of members.
  std::optional<int64_t> min_workers;
  // A member must be missing for this long before training continues without it.
  Duration grace = std::chrono::seconds(30);
};

struct Timeouts {
  Duration join = std::chrono::minutes(10);       // Until all declared members have joined.
  Duration rejoin = std::chrono::minutes(10);     // Until a lost member is back.
  Duration resume = std::chrono::seconds(1);      // A broken session may resume within this time.
  Duration heartbeat = std::chrono::seconds(10);  // A member is lost after this silence.
  // Limit from the end of a generation to the loop's return from it.
  Duration abort = std::chrono::minutes(1);
  Duration formation = std::chrono::seconds(20);
  Duration collective = std::chrono::minutes(10);
  Duration evaluate = std::chrono::minutes(10);  // Limit for the evaluator's final evaluation.
  // Limit from the last step to the acknowledgement of all members.
  Duration end = std::chrono::seconds(30);
  Duration bind = std::chrono::seconds(10);  // How long to retry a port that is in use.
  // The maximum time of a member in one phase; job keys "timeouts.phase.<name>". The defaults of
  // data and forward together stay within `collective`. So the member that hangs is blamed before
  // the members that wait for it.
  Duration phase[kNumPhases];
  Timeouts();
};

// PEM files that identify tasks in place of a run key. "{type}" and "{index}" in a path stand for
// the task's own.
struct TlsOptions {
  // Set by earlier versions. If true, the three files are required. TLS is on if there is a
  // certificate.
  bool enabled = false;
  std::string certificate, key, authority;
};

struct SecurityOptions {
  std::string key_file;               // The run key (common/security/run_key.h).
  bool insecure = false;              // Trust the network: tasks do not authenticate.
  std::string file_mode = "private";  // Mode of the files in model_dir: private | group | umask.
};

struct Job {
  // The name of a built-in program, or a value that names a file by its absolute path
  // (program_path.h).
  Json program;
  Json program_args = Json::object();
  // The folder of relative paths of input files (PathFrom in base/files.h). Host-local. LoadJob
  // sets it to the job file's absolute folder if the file does not name one. Empty: this process's
  // current folder.
  std::string folder;
  Json data;  // Null: the program's own data. See common/data/job/job_data.h.
  std::optional<StrategyKind> strategy;  // Absent: chosen from the cluster.
  std::optional<int64_t> global_batch_size, per_replica_batch_size;
  std::optional<int64_t> epochs, max_steps, steps_per_epoch;
  // Micro-batches into which a replica splits its slice of the global batch.
  int64_t accumulate_steps = 1;
  // Absent: the program's choice (default: the short last batch is kept).
  std::optional<bool> drop_remainder;
  uint64_t seed = 42;
  std::string model_dir;         // Empty: nothing is written.
  std::string restore = "auto";  // auto | never | PATH
  std::string devices = "auto";
  Precision precision = Precision::kFloat32;
  // Training computes the same bits from run to run: operators use deterministic algorithms, or
  // refuse.
  bool deterministic = false;
  // Initial weights by model (load_spec.h). Only the chief reads the files.
  Json load = Json::object();
  LossReduction loss_reduction = LossReduction::kGlobal;
  Json optimizer, learning_rate;  // Null: the program's default.
  // By table name, or "*" for all tables: options that override EmbeddingOptions (dtype, max_rows,
  // max_bytes, eviction, admit_after, initializer).
  Json embeddings = Json::object();
  CheckpointOptions checkpoint;
  SummaryOptions summary;
  EvaluateOptions evaluate;
  Json callbacks = Json::array();
  CollectiveOptions collective;
  Json parameter_server = Json::object();
  ElasticOptions elastic;
  Timeouts timeouts;
  TlsOptions tls;
  SecurityOptions security;
  // The FileDigest of each file that the job names, as this process finds it, by the dotted key
  // that names the file. Members compare them at join, for the keys that both have. Digests in a
  // job file are ignored.
  Json digests = Json::object();
};

// `overrides` are the --set arguments, "dotted.key=value" with a JSON value or a bare word. Every
// error is a ConfigurationError that names the dotted key.
absl::StatusOr<Job> LoadJob(const std::string& path, const std::vector<std::string>& overrides);
absl::StatusOr<Job> JobFromJson(const Json& json);
// Returns the whole job with every default spelt out. JobFromJson(JobToJson(j)) equals j.
Json JobToJson(const Job& job);
// Returns the first dotted key in which two resolved jobs differ, or "" if none. Ignores host-local
// keys (folder, devices, tls and security.key_file paths, security.insecure, collective.interface).
// Also ignores the paths of program files, and the options that say how a host loads its data
// (threads, prefetch, cache). "digests.<key>" means that the files of that key differ.
std::string FirstDifference(const Json& job, const Json& other);
// Like FirstDifference, but compares only the files.
std::string FirstDifferingFile(const Json& job, const Json& other);

// Returns the job's strategy, checked against the cluster. The default is parameter_server if the
// cluster has ps, multi_worker_mirrored if it has several members, else mirrored. With one device
// mirrored is the same as one_device.
absl::StatusOr<StrategyKind> StrategyFor(const Job& job, const ClusterConfig& cluster);

}  // namespace muster
