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

// How the sum of the per-example losses becomes the objective: divided by the examples of the
// actual global batch, by global_batch_size, or, as TensorFlow does by default, by replicas x local
// batch.
enum class LossReduction { kGlobal, kNominal, kLocalMean };
inline constexpr std::string_view kLossReductionNames[] = {"global", "nominal", "local_mean"};
enum class Precision { kFloat32, kBFloat16, kFloat16 };
inline constexpr std::string_view kPrecisionNames[] = {"float32", "bfloat16", "float16"};

// Always saved: the end of the job, and an agreed stop. In between as these say; with neither,
// every epoch.
struct CheckpointOptions {
  std::optional<int64_t> every_steps, every_epochs;
  int keep = 3;                    // the newest ones
  std::string best = "loss";       // the metric of evaluation (or validation) that decides
  std::string best_mode = "auto";  // min | max | auto: min for losses and errors, else max
  // By the epoch's own metrics instead: a model_checkpoint monitors one without "val_".
  bool best_of_training = false;
};

struct SummaryOptions {
  int64_t every_steps = 50;             // scalars and images
  int64_t histograms_every_epochs = 0;  // of every parameter; 0: never
};

struct EvaluateOptions {
  // Examples that a replica takes at once in a pass. Absent: as many as in training.
  std::optional<int64_t> batch_size;
};

struct CollectiveOptions {
  std::string backend = "auto";  // auto | nccl | tcp | shared_memory | hierarchical
  std::string interface;  // name of a network interface; empty: the one of the control connection
  int64_t bucket_bytes = 25 << 20;
  int64_t first_bucket_bytes = 1 << 20;
};

// To go on with fewer members after a loss, and to grow back.
struct ElasticOptions {
  // All members count, the chief too. Absent: training waits for the declared number of members.
  std::optional<int64_t> min_workers;
  Duration grace = std::chrono::seconds(30);  // without a member until training goes on
};

struct Timeouts {
  Duration join = std::chrono::minutes(10);       // until all declared members are there
  Duration rejoin = std::chrono::minutes(10);     // until a lost member is back
  Duration resume = std::chrono::seconds(1);      // a broken session may resume
  Duration heartbeat = std::chrono::seconds(10);  // silence after which a member is lost
  Duration abort = std::chrono::minutes(1);  // from a generation's end to the loop's return from it
  Duration formation = std::chrono::seconds(20);
  Duration collective = std::chrono::minutes(10);
  Duration evaluate = std::chrono::minutes(10);  // the evaluator's final evaluation
  Duration end = std::chrono::seconds(30);   // from the last step to everybody's acknowledgement
  Duration bind = std::chrono::seconds(10);  // a port in use is retried this long
  // By phase, job keys "timeouts.phase.<name>": how long a member may stay in one. The order of the
  // defaults matters: data plus forward stays within `collective`, so that the member that hangs is
  // blamed before those that wait for it.
  Duration phase[kNumPhases];
  Timeouts();
};

// PEM files, by which tasks prove who they are in the place of a run key. "{type}" and "{index}" in
// a path stand for the task's.
struct TlsOptions {
  bool enabled = false;  // of earlier versions: what counts is whether there is a certificate
  std::string certificate, key, authority;
};

struct SecurityOptions {
  std::string key_file;               // the run key (common/security/run_key.h)
  bool insecure = false;              // the network is trusted: nobody has to prove anything
  std::string file_mode = "private";  // of what model_dir gets: private | group | umask
};

struct Job {
  Json program;  // built-in name, or what names a file (program_path.h), whose path is absolute
  Json program_args = Json::object();
  // Host-local: where relative paths of files to read are looked up (PathFrom in base/files.h).
  // LoadJob sets it to the job file's absolute folder where the file does not; empty: this
  // process's.
  std::string folder;
  Json data;                             // null: the program's own; see common/data/job_data.h
  std::optional<StrategyKind> strategy;  // absent: from the cluster
  std::optional<int64_t> global_batch_size, per_replica_batch_size;
  std::optional<int64_t> epochs, max_steps, steps_per_epoch;
  int64_t accumulate_steps =
      1;  // micro-batches in which a replica works through its slice of the global batch
  std::optional<bool>
      drop_remainder;  // absent: the program's choice (default: the short last batch is kept)
  uint64_t seed = 42;
  std::string model_dir;         // empty: nothing is written
  std::string restore = "auto";  // auto | never | PATH
  std::string devices = "auto";
  Precision precision = Precision::kFloat32;
  // The same bits from run to run: algorithms that are deterministic, or a refusal.
  bool deterministic = false;
  // Weights to begin with, by model (load_spec.h). Only the chief reads the files.
  Json load = Json::object();
  LossReduction loss_reduction = LossReduction::kGlobal;
  Json optimizer, learning_rate;  // null: the program's default
  // By the name of a table, or "*" for all: options in the place of EmbeddingOptions' (dtype,
  // max_rows, max_bytes, eviction, admit_after, initializer).
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
  // Of the files that the job names, as this process finds them: FileDigest by the dotted key that
  // names the file. Compared at join for the keys that both sides have; what a job file says of
  // them does not count.
  Json digests = Json::object();
};

// `overrides` are the --set arguments, "dotted.key=value" with a JSON value or a bare word. All
// errors are ConfigurationErrors that name the key, dotted.
absl::StatusOr<Job> LoadJob(const std::string& path, const std::vector<std::string>& overrides);
absl::StatusOr<Job> JobFromJson(const Json& json);
// The whole job with every default spelt out; JobFromJson(JobToJson(j)) is j again.
Json JobToJson(const Job& job);
// The first key (dotted) in which two resolved jobs differ, host-local keys (folder, devices, tls
// paths, collective.interface) and the paths of program files left out; "" if none.
// "digests.<key>": the files of that name differ.
std::string FirstDifference(const Json& job, const Json& other);
// The same among the files alone.
std::string FirstDifferingFile(const Json& job, const Json& other);

// The job's strategy, checked against the cluster; where it names none: parameter_server if the
// cluster has ps, multi_worker_mirrored if it has several members, else mirrored (with one device
// the same as one_device).
absl::StatusOr<StrategyKind> StrategyFor(const Job& job, const ClusterConfig& cluster);

}  // namespace muster
