// The job: the content of a job file (docs/job_file.md) as one struct. main reads the job file once
// and passes the Job to the other parts of the process.
//
// A member is a task that takes part in training: the chief or a worker. In a parameter-server job,
// the members are the workers and the ps tasks. A generation is a period of training with fixed
// members. The loss of a member ends the generation. A session is the gRPC stream between a member
// and the chief.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/cluster/cluster_config.h"
#include "common/cluster/strategy_kind.h"
#include "common/job/timeouts.h"
#include "muster/json.h"
#include "muster/status.h"

namespace muster {

// The number by which training divides the sum of the per-example losses.
enum class LossReduction {
  kGlobal,    // The number of examples in the step's global batch, which may be short.
  kNominal,   // global_batch_size.
  kLocalMean  // The number of replicas times the replica's batch size. TensorFlow's default.
};
inline constexpr std::string_view kLossReductionNames[] = {"global", "nominal", "local_mean"};
enum class Precision { kFloat32, kBFloat16, kFloat16 };
inline constexpr std::string_view kPrecisionNames[] = {"float32", "bfloat16", "float16"};

// Options for saving checkpoints. In addition to the intervals, the chief saves a checkpoint at the
// end of the job, and when a signal stops the job.
struct CheckpointOptions {
  // The intervals between checkpoints. If neither is set, the interval is one epoch.
  std::optional<int64_t> every_steps, every_epochs;
  int keep = 3;  // The number of newest checkpoints to keep, in addition to the best checkpoint.
  // The metric that selects the best checkpoint. The values of the metric come from the evaluator.
  // Without an evaluator, they come from validation.
  std::string best = "loss";
  // min | max | auto. auto: min if the metric's name is the name of a loss or an error, otherwise
  // max.
  std::string best_mode = "auto";
  // If true, the values of `best` come from the epoch's training metrics. ApplyCallbacks sets this
  // to true if a model_checkpoint callback monitors a metric whose name does not begin with "val_".
  bool best_of_training = false;
};

struct SummaryOptions {
  int64_t every_steps = 50;             // The interval between points of scalars and images.
  int64_t histograms_every_epochs = 0;  // The interval between histograms of parameters. 0: none.
};

struct EvaluateOptions {
  // The batch size of a replica in validation and test. Absent: the micro-batch size of training.
  std::optional<int64_t> batch_size;
};

struct CollectiveOptions {
  std::string backend = "auto";  // auto | nccl | tcp | shared_memory | hierarchical
  // The name of the network interface for data connections. Empty: the interface of the route to
  // the chief.
  std::string interface;
  // The sizes of gradient buckets. A bucket is a group of gradients that one all-reduce sums.
  int64_t bucket_bytes = 25 << 20;
  int64_t first_bucket_bytes = 1 << 20;
};

// Options of elastic training. An elastic job continues with fewer members after a member is lost,
// and admits new members at any time.
struct ElasticOptions {
  // The minimum number of members, including the chief. Absent: the job is not elastic, and waits
  // for the replacement of each lost member.
  std::optional<int64_t> min_workers;
  // How long training waits for a missing member before it continues without that member.
  Duration grace = std::chrono::seconds(30);
  // The number of spare members. A spare member does not train until it replaces a lost member.
  int64_t spares = 0;
};

// Paths of PEM files that identify a task. The files replace the run key. "{type}" and "{index}" in
// a path stand for the task's type and index.
struct TlsOptions {
  // Accepted for old job files. TLS is on if `certificate` is set, even if `enabled` is false. If
  // `enabled` is true, all three paths are required.
  bool enabled = false;
  std::string certificate, key, authority;
};

struct SecurityOptions {
  std::string key_file;   // The path of the run key (common/security/run_key.h).
  bool insecure = false;  // If true, tasks do not authenticate each other.
  // The users who may read the files in model_dir: private | group | umask
  // (common/base/files/created_files.h).
  std::string file_mode = "private";
};

// HTTP servers for people and for Prometheus.
struct StatusOptions {
  // The port of the chief's status page. 0: none.
  int64_t port = 0;
  // The port of /metrics for the first task on a host. The following tasks on the host, in the
  // order of the cluster, have the following ports. 0: none.
  int64_t metrics_port = 0;
  // The address on which both servers listen: "127.0.0.1", "0.0.0.0" or "::".
  std::string address = "127.0.0.1";
};

struct Job {
  // The name of a built-in program, the absolute path of a plugin, or an object for a program that
  // Python exported (program_path.h).
  Json program;
  Json program_args = Json::object();
  // The folder against which relative paths in `data` and `load` are resolved (PathFrom in
  // base/files/files.h). May differ between hosts. If the job file has no key "folder", LoadJob
  // sets `folder` to the absolute folder of the job file. Empty: the process's current folder.
  std::string folder;
  Json data;  // See common/data/job/job_data.h. Null: the program's data.
  std::optional<StrategyKind> strategy;  // Absent: StrategyFor chooses a strategy for the cluster.
  std::optional<int64_t> global_batch_size, per_replica_batch_size;
  std::optional<int64_t> epochs, max_steps, steps_per_epoch;
  // The number of micro-batches into which a replica splits its part of the global batch.
  int64_t accumulate_steps = 1;
  // Whether to drop an incomplete last batch of an epoch. Absent: the program decides. By default,
  // programs keep the batch.
  std::optional<bool> drop_remainder;
  uint64_t seed = 42;
  std::string model_dir;         // Empty: the job writes no files.
  std::string restore = "auto";  // auto | never | PATH
  std::string devices = "auto";
  Precision precision = Precision::kFloat32;
  // If true, training gives bit-identical results in each run. Operators without a deterministic
  // algorithm fail.
  bool deterministic = false;
  // The initial weights of each model (load_spec.h). Only the chief reads the files.
  Json load = Json::object();
  LossReduction loss_reduction = LossReduction::kGlobal;
  Json optimizer, learning_rate;  // Null: the program's default.
  // Options of embedding tables. The keys are names of tables, or "*" for all tables. The options
  // are dtype, max_rows, max_bytes, eviction, admit_after and initializer. They replace the options
  // that the program sets in EmbeddingOptions.
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
  // The digests of the files that the job names (PathDigest in base/files/files.h). The keys are
  // the dotted job keys that name the files. Each process computes its own digests. When a member
  // joins, the chief compares the digests of the keys that both the chief and the member have.
  // Digests in a job file are ignored.
  Json digests = Json::object();
};

// Reads a job file. `overrides` are the --set arguments: "dotted.key=value". The value is JSON, or
// a plain word for a string. Errors are ConfigurationErrors that name the dotted key.
absl::StatusOr<Job> LoadJob(const std::string& path, const std::vector<std::string>& overrides);
absl::StatusOr<Job> JobFromJson(const Json& json);
// Returns the whole job, including default values. JobFromJson(JobToJson(j)) equals j.
Json JobToJson(const Job& job);
// Returns the first dotted key in which two jobs differ, or "" if the jobs are equal. The arguments
// are results of JobToJson. If the digests of a key's files differ, the result is "digests.<key>".
// Ignores keys that may differ between hosts: folder, devices, status, the paths of tls,
// security.key_file, security.insecure, collective.interface, the paths of program files,
// data.threads, data.prefetch, and the key "cache" of each split.
std::string FirstDifference(const Json& job, const Json& other);
// Like FirstDifference, but compares only the digests.
std::string FirstDifferingFile(const Json& job, const Json& other);

// Returns the job's strategy. Returns an error if the strategy does not suit the cluster.
// The default is parameter_server for a cluster with ps tasks, multi_worker_mirrored for
// several members, and mirrored for one member. With one device, mirrored is the same as
// one_device.
absl::StatusOr<StrategyKind> StrategyFor(const Job& job, const ClusterConfig& cluster);

}  // namespace muster
