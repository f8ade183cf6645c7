// The job: the content of a job file (docs/job_file.md) as one struct. main reads it once and
// passes it down.
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

// The divisor of the sum of per-example losses, which gives the objective. kGlobal: the number of
// examples in the actual global batch. kNominal: global_batch_size. kLocalMean: the number of
// replicas times the replica's local batch size, as TensorFlow does by default.
enum class LossReduction { kGlobal, kNominal, kLocalMean };
inline constexpr std::string_view kLossReductionNames[] = {"global", "nominal", "local_mean"};
enum class Precision { kFloat32, kBFloat16, kFloat16 };
inline constexpr std::string_view kPrecisionNames[] = {"float32", "bfloat16", "float16"};

// When to save checkpoints. If neither interval is set, a checkpoint is saved after each epoch. A
// checkpoint is always saved at the end of the job, and when a signal stops the job at an agreed
// step.
struct CheckpointOptions {
  std::optional<int64_t> every_steps, every_epochs;
  int keep = 3;  // The number of newest checkpoints to keep.
  // The metric that selects the best checkpoint. Its values come from the evaluator, or from
  // validation if there is no evaluator.
  std::string best = "loss";
  std::string best_mode = "auto";  // min | max | auto. auto: min for losses and errors, else max.
  // If true, the values come from the epoch's training metrics instead. Set if a model_checkpoint
  // callback monitors a metric without "val_".
  bool best_of_training = false;
};

struct SummaryOptions {
  int64_t every_steps = 50;             // Scalars and images.
  int64_t histograms_every_epochs = 0;  // For every parameter. 0: never.
};

struct EvaluateOptions {
  // The replica's batch size in an evaluation pass. Absent: the same as in training.
  std::optional<int64_t> batch_size;
};

struct CollectiveOptions {
  std::string backend = "auto";  // auto | nccl | tcp | shared_memory | hierarchical
  // The name of a network interface. Empty: the interface of the connection to the chief.
  std::string interface;
  int64_t bucket_bytes = 25 << 20;
  int64_t first_bucket_bytes = 1 << 20;
};

// Elastic training: it continues with fewer members after a loss, and takes new members later.
struct ElasticOptions {
  // The minimum number of members, including the chief. Absent: training waits for the declared
  // number of members.
  std::optional<int64_t> min_workers;
  // Training waits this long for a missing member before it continues without that member.
  Duration grace = std::chrono::seconds(30);
  // This many of the declared members wait, ready, until they replace a lost member.
  int64_t spares = 0;
};

struct Timeouts {
  Duration join = std::chrono::minutes(10);    // For all members of the cluster to join.
  Duration rejoin = std::chrono::minutes(10);  // For a lost member to rejoin.
  Duration resume = std::chrono::seconds(1);   // For a member to resume a broken session.
  // A member that sends nothing for this time is lost.
  Duration heartbeat = std::chrono::seconds(10);
  // For a member's loop to stop after its generation was aborted.
  Duration abort = std::chrono::minutes(1);
  Duration formation = std::chrono::seconds(20);   // For a generation to form.
  Duration collective = std::chrono::minutes(10);  // For one collective operation.
  Duration evaluate = std::chrono::minutes(10);    // For the evaluator's final evaluation.
  // For all members to acknowledge the end after the last step.
  Duration end = std::chrono::seconds(30);
  Duration bind = std::chrono::seconds(10);  // For retries while a port is in use.
  // For a member in one phase (job keys "timeouts.phase.<name>"). The sum of the defaults of data
  // and forward is at most `collective`. A member that hangs there is therefore found before the
  // members that wait for it time out.
  Duration phase[kNumPhases];
  Timeouts();
};

// Paths of PEM files that identify a task. They replace the run key. "{type}" and "{index}" in a
// path stand for the task's type and index.
struct TlsOptions {
  // A key that earlier versions needed. If true, all three files are required. TLS is on whenever
  // `certificate` is set.
  bool enabled = false;
  std::string certificate, key, authority;
};

struct SecurityOptions {
  std::string key_file;   // The path of the run key (common/security/run_key.h).
  bool insecure = false;  // If true, tasks do not authenticate each other.
  // The access to files in model_dir: private | group | umask (base/files/created_files.h).
  std::string file_mode = "private";
};

// Where a running task can be watched. A port of 0 is off.
struct StatusOptions {
  // The port of the chief's status page.
  int64_t port = 0;
  // The port of /metrics of the first task on a host. The port of each further task on that host,
  // in the order of the cluster, is one higher.
  int64_t metrics_port = 0;
  // The address on which both listen: "127.0.0.1", "0.0.0.0" or "::".
  std::string address = "127.0.0.1";
};

struct Job {
  // The name of a built-in program, or the absolute path of a program file (program_path.h).
  Json program;
  Json program_args = Json::object();
  // The folder against which relative paths of input files are resolved (PathFrom in
  // base/files/files.h). May differ between hosts. If the job file does not set it, LoadJob sets it
  // to the absolute folder of the job file. Empty: the process's current folder.
  std::string folder;
  Json data;  // See common/data/job/job_data.h. Null: the program's own data.
  std::optional<StrategyKind> strategy;  // Absent: chosen from the cluster.
  std::optional<int64_t> global_batch_size, per_replica_batch_size;
  std::optional<int64_t> epochs, max_steps, steps_per_epoch;
  // The number of micro-batches into which a replica splits its slice of the global batch.
  int64_t accumulate_steps = 1;
  // Whether to drop the last batch of an epoch if it is short. Absent: the program decides. Its
  // default is to keep the batch.
  std::optional<bool> drop_remainder;
  uint64_t seed = 42;
  std::string model_dir;         // Empty: the job writes no files.
  std::string restore = "auto";  // auto | never | PATH
  std::string devices = "auto";
  Precision precision = Precision::kFloat32;
  // If true, training gives bit-identical results in each run. Operators use deterministic
  // algorithms, or fail if they have none.
  bool deterministic = false;
  // The initial weights of each model (load_spec.h). Only the chief reads the files.
  Json load = Json::object();
  LossReduction loss_reduction = LossReduction::kGlobal;
  Json optimizer, learning_rate;  // Null: the program's default.
  // Options of embedding tables, by table name or "*" for all tables. They override
  // EmbeddingOptions (dtype, max_rows, max_bytes, eviction, admit_after, initializer).
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
  StatusOptions status;
  // The digest of each file that the job names, computed by this process (PathDigest). The keys are
  // the dotted job keys that name the files. When a member joins, its digests are compared with the
  // chief's, for the keys that both have. Digests in a job file are ignored.
  Json digests = Json::object();
};

// Reads a job file. `overrides` are the --set arguments: "dotted.key=value" with a JSON value or a
// bare word. Errors are ConfigurationErrors that name the dotted key.
absl::StatusOr<Job> LoadJob(const std::string& path, const std::vector<std::string>& overrides);
absl::StatusOr<Job> JobFromJson(const Json& json);
// Returns the whole job, including the default values. JobFromJson(JobToJson(j)) equals j.
Json JobToJson(const Job& job);
// Returns the first dotted key in which two jobs (results of JobToJson) differ, or "". Returns
// "digests.<key>" if the files of that key differ. Ignores keys that may differ between hosts:
// folder, devices, status, the paths of tls, security.key_file, security.insecure,
// collective.interface, the paths of program files, and how a host loads its data (threads,
// prefetch, cache).
std::string FirstDifference(const Json& job, const Json& other);
// As FirstDifference, but only compares the digests of files.
std::string FirstDifferingFile(const Json& job, const Json& other);

// Returns the job's strategy, or an error if the cluster does not suit it. The default is
// parameter_server if the cluster has ps tasks, multi_worker_mirrored if it has several members,
// and mirrored otherwise. With one device, mirrored is the same as one_device.
absl::StatusOr<StrategyKind> StrategyFor(const Job& job, const ClusterConfig& cluster);

}  // namespace muster
