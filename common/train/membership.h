// The training loop's two interfaces: Membership, to the cluster, and Observer, for reports.
// worker/ implements Membership over the coordinator's session. LocalMembership (below) serves a
// single process. chief/ implements Observer.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/phase.h"
#include "common/collective/communicator.h"
#include "common/push_pull/rows/table_statistics.h"
#include "common/summary/histogram.h"
#include "common/train/replica/loss_scale.h"
#include "muster/json.h"

namespace muster {

// One agreed membership. Replaced as a whole when a member is lost or joins.
struct Generation {
  bool job_done = false;  // The job had already ended: no work is left, and no other field is set.
  uint64_t id = 0;
  std::string run_id;
  int rank = 0;
  std::vector<int> replicas_per_rank;  // Indexed by rank. size() is the world size.
  int replicas_on_host = 1;            // Replicas of all members that share this host's cores.
  int owner = 0;                       // The rank with the newest state, which it broadcasts.
  int64_t owner_step = 0;              // Completed steps of that state.
  // One for each local replica. A replica's rank counts all replicas of the generation.
  std::vector<std::unique_ptr<Communicator>> replicas;
  int world_size() const { return static_cast<int>(replicas_per_rank.size()); }
};

class Membership {
 public:
  virtual ~Membership() = default;
  // Joins, or rejoins after an abort, and returns when the generation is formed. An error is the
  // verdict that ends the loop. `last_step` is the number of the last step that this process has
  // applied.
  virtual absl::StatusOr<Generation> NextGeneration(int64_t last_step) = 0;
  // Thread-safe, cheap. Sets the phase and the current step that heartbeats report from now on.
  virtual void SetPhase(Phase phase, int64_t step) = 0;
  // Called when a collective failed. Reports `local` to the coordinator and returns the
  // coordinator's reason for the end of the generation, within its deadlines. That reason says more
  // than the local error, such as a reset connection.
  virtual absl::Status Explain(const absl::Status& local) = 0;
  // Reports this process's own failure (program, data). Called before anything else, so that the
  // verdict names it.
  virtual void ReportFailure(const absl::Status& failure) = 0;
  // Called when this process is asked to stop (SIGTERM or SIGINT). Thread-safe.
  virtual void RequestStop() = 0;
  // Returns whether RequestStop was called or the coordinator requests a stop. Read once a step.
  virtual bool StopRequested() const = 0;
  // Called when the loop has ended: OK, or Preempted after a stop at an agreed step. Reports it to
  // the coordinator and returns the verdict for this process, which is `outcome` if all members
  // ended alike.
  virtual absl::Status Finish(int64_t last_step, const absl::Status& outcome) = 0;
  // Valid after Explain or Finish. False if only the generation has ended: the caller then joins
  // the next one (NextGeneration).
  virtual bool JobEnded() const { return true; }
};

// Sent after each committed step, on rank 0 only. All numbers are global, reduced over all
// replicas.
struct StepReport {
  int64_t step = 0;           // From 1.
  int64_t epoch = 0;          // From 0.
  int64_t step_in_epoch = 0;  // From 1.
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;   // 0: not known.
  double loss = 0;           // Whole objective before the update, over the global batch.
  double learning_rate = 0;  // Rate of the first optimizer.
  std::map<std::string, double> learning_rates;  // Keyed by optimizer.
  // Keyed by optimizer. The L2 norm before clipping, at steps that write a summary. With parameter
  // servers, the norm of one worker's gradients.
  std::map<std::string, double> gradient_norms;
  int64_t examples = 0;                   // Examples in this step.
  std::map<std::string, double> values;   // The program's own, reduced like losses ("d_loss").
  std::map<std::string, double> metrics;  // Running example-weighted means of this epoch.
  // Set in a float16 run. With parameter servers, the scale of the worker that computed this step.
  std::optional<LossScaleReport> loss_scale;
  // Compute and wait are those of rank 0's first replica. Input is that of the replica that waited
  // longest for its part of the batch. With parameter servers, all are those of the worker that
  // computed this step.
  double compute_seconds = 0, wait_seconds = 0, input_seconds = 0;
  // Time since the previous step.
  double total_seconds = 0;
  // The time that contains input_seconds. It equals total_seconds, except with parameter servers,
  // where the steps of workers overlap. There it is the worker's time for this step.
  double step_seconds = 0;
};

// Sent after a pass over a split (train: the epoch's running metrics), on rank 0 only.
struct EpochReport {
  std::string split;  // train | validation | test
  int64_t epoch = 0;  // From 0.
  int64_t step = 0;   // Completed steps.
  int64_t examples = 0;
  std::map<std::string, double> metrics;  // "loss", "accuracy", ...
  double seconds = 0;
};

struct ParameterReport {
  std::string model, name;  // `name` is the name within the model.
  std::vector<int64_t> shape;
  bool trainable = true;
};

struct StartReport {
  std::string program;
  int world_size = 0, num_replicas = 0;
  int64_t global_batch_size = 0, steps_per_epoch = 0, epochs = 0, total_steps = 0, start_step = 0;
  int64_t start_examples = 0;                     // Trained on before start_step.
  bool validation_due = false, test_due = false;  // Passes of start_step that run again.
  // The report of start_step, if a process made that step in this run's memory rather than
  // restoring it. A lost chief may not have reported it.
  std::optional<StepReport> last_step;
  // Set if start_step ended an epoch or the job: that epoch's metrics, as in EpochReport.
  std::map<std::string, double> train_metrics;
  // The completed passes at start_step, if a process made them in this run's memory. They may not
  // have been reported either. Without examples and seconds.
  std::vector<EpochReport> passes;
  // Epochs that had begun at start_step. -1: computed from the steps of an epoch.
  int64_t epochs_begun = -1;
  bool finished = false;  // The program had ended its training at start_step.
  // The step whose weights callbacks have restored at start_step. 0: the weights are those of
  // start_step.
  int64_t weights_of = 0;
  std::optional<LossScaleReport> loss_scale;                 // Set in a float16 run, at start_step.
  std::vector<std::pair<std::string, int64_t>> split_sizes;  // "train" -> examples.
  std::vector<std::pair<std::string, int64_t>> parameter_counts;  // Model -> parameters.
  std::vector<ParameterReport> parameters;  // Parameters of all models, in their order.
  std::vector<std::string> groups;          // The lines of DescribeGroups.
};

// Comes from rank 0's first replica.
struct ImageReport {
  std::string tag;
  int64_t step = 0;
  int count = 0, height = 0, width = 0, channels = 0;  // channels: 1 (gray), 3 (RGB) or 4 (RGBA).
  std::vector<uint8_t> pixels;                         // [count][height][width][channels]
};
struct HistogramReport {
  std::string tag;
  int64_t step = 0;
  summary::Distribution distribution;
};

// Values by tag, in addition to those of StepReport.
struct ScalarReport {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

// The embedding tables after a step, by name. Lookups, evictions and refusals are counted since the
// start of the processes that hold the tables. In the synchronous strategies the counts are those
// of rank 0, which counts the lookups of its own replicas.
struct TablesReport {
  int64_t step = 0;
  std::vector<std::pair<std::string, TableStatistics>> tables;
};

// Receives reports on rank 0, for example for the progress bar, summaries and result.json. Called
// on the loop's thread, in order. Must not throw.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnStart(const StartReport&) {}
  virtual void OnStep(const StepReport&) {}
  virtual void OnEpoch(const EpochReport&) {}
  // The program ended its training after this step, before the job's own end.
  virtual void OnFinish(int64_t /*step*/) {}
  // Called right before the state after `step` is handed over for saving. Earlier reports must be
  // durable then, so that a restart leaves no gap in the log.
  virtual void OnSave(int64_t /*step*/) {}
  // An image or a distribution that the program showed (Step::image, Step::histogram, and the same
  // of Evaluation), or the distribution of a parameter. `split` is the split it belongs to.
  virtual void OnImages(const std::string& /*split*/, const ImageReport&) {}
  virtual void OnHistogram(const std::string& /*split*/, const HistogramReport&) {}
  virtual void OnScalars(const std::string& /*split*/, const ScalarReport&) {}
  // Called in programs with tables, right after each OnStep.
  virtual void OnTables(const TablesReport&) {}
  // Reports of callbacks: a text for TensorBoard's train folder, and a callback's entry in
  // result.json.
  virtual void OnText(int64_t /*step*/, const std::string& /*tag*/, const std::string& /*text*/) {}
  virtual void OnCallback(const std::string& /*name*/, const Json& /*note*/) {}
  // Damaged examples that on_error "skip" dropped from a step or pass, over all replicas. `names`
  // describes those that were not named before.
  virtual void OnLeftOut(const std::string& /*split*/, int64_t /*examples*/,
                         const std::vector<std::string>& /*names*/) {}
  // Called during validation and test passes. `done` and `total` count batches.
  virtual void OnEvaluateProgress(const std::string& /*split*/, int64_t /*done*/,
                                  int64_t /*total*/) {}
};

// Returns the membership of one process without a coordinator, as in `muster-worker --job` without
// TF_CONFIG. `cuda_devices`: one for each replica, or empty for replicas on the CPU. `timeout`
// bounds each collective among them.
std::unique_ptr<Membership> MakeLocalMembership(int num_replicas, Duration timeout,
                                                std::vector<int> cuda_devices = {});

}  // namespace muster
