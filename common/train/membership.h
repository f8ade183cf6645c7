// The two interfaces that the training loop calls. Membership connects the loop to the other
// members of the job. common/membership/ implements it with a session to the coordinator.
// MakeLocalMembership returns an implementation for a single process. Observer receives the loop's
// reports, and chief/ implements it.
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

// A group of members that train together. When a member is lost or joins, the coordinator forms a
// new generation.
struct Generation {
  bool job_done = false;  // True if the job had already ended. No other field is set then.
  uint64_t id = 0;
  std::string run_id;
  int rank = 0;
  std::vector<int> replicas_per_rank;  // Indexed by rank. size() is the world size.
  int replicas_on_host = 1;            // Replicas of all members on this host.
  int owner = 0;                       // The rank that has the newest state and broadcasts it.
  int64_t owner_step = 0;              // Completed steps of the newest state.
  // One communicator for each local replica. Its rank is the replica's index in the generation.
  std::vector<std::unique_ptr<collective::Communicator>> replicas;
  int world_size() const { return static_cast<int>(replicas_per_rank.size()); }
};

class Membership {
 public:
  virtual ~Membership() = default;
  // Joins the job, or rejoins it after an abort. Blocks until a generation is formed. An error is
  // the verdict of the job and ends the loop. `last_step` is the last step that this process has
  // applied.
  virtual absl::StatusOr<Generation> NextGeneration(int64_t last_step) = 0;
  // Sets the phase and the step that heartbeats report from now on. Thread-safe and cheap.
  virtual void SetPhase(Phase phase, int64_t step) = 0;
  // Called when a collective failed with the error `local`, such as a reset connection. Reports it
  // to the coordinator. Blocks until the coordinator gives its reason for the end of the
  // generation, or a deadline has passed. Returns that reason, which says more than the local
  // error.
  virtual absl::Status Explain(const absl::Status& local) = 0;
  // Reports a failure of this process's own program or data. The first call after such a failure,
  // so that the verdict names the failure.
  virtual void ReportFailure(const absl::Status& failure) = 0;
  // Called when this process receives a stop request (SIGTERM or SIGINT). Thread-safe.
  virtual void RequestStop() = 0;
  // Returns true if RequestStop was called or the coordinator requests a stop. Called once a step.
  virtual bool StopRequested() const = 0;
  // Called when the loop has ended. `outcome` is OK, or Preempted after a stop at an agreed step.
  // Reports `outcome` to the coordinator. Returns the verdict for this process, which is `outcome`
  // if all members ended with the same outcome.
  virtual absl::Status Finish(int64_t last_step, const absl::Status& outcome) = 0;
  // Returns true if the job has ended. Returns false if only the generation has: the caller then
  // calls NextGeneration. Valid after Explain or Finish.
  virtual bool JobEnded() const { return true; }
};

// The report of a committed step, only on rank 0. Numbers are reduced over all replicas, unless the
// field says otherwise.
struct StepReport {
  int64_t step = 0;           // Counts from 1.
  int64_t epoch = 0;          // Counts from 0.
  int64_t step_in_epoch = 0;  // Counts from 1.
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;   // 0 if unknown.
  double loss = 0;           // The objective before the update, over the global batch.
  double learning_rate = 0;  // Rate of the first optimizer.
  std::map<std::string, double> learning_rates;  // Keyed by optimizer.
  // The L2 norm of the gradients before clipping, keyed by optimizer. Set at steps that write a
  // summary. With parameter servers, the norm of one worker's gradients.
  std::map<std::string, double> gradient_norms;
  int64_t examples = 0;  // Examples in this step.
  // Values that the program reports ("d_loss"), reduced like losses.
  std::map<std::string, double> values;
  std::map<std::string, double> metrics;  // Running example-weighted means of this epoch.
  // Set in a float16 run. With parameter servers, the scale of the worker that computed this step.
  std::optional<LossScaleReport> loss_scale;
  // Compute and wait times are those of rank 0's first replica. The input time is the longest wait
  // of a replica for its part of the batch. With parameter servers, all three are times of the
  // worker that computed this step.
  double compute_seconds = 0, wait_seconds = 0, input_seconds = 0;
  // Time since the previous step.
  double total_seconds = 0;
  // The duration of the step, including input_seconds. It equals total_seconds, except with
  // parameter servers, where the steps of workers overlap. There it is the worker's time for this
  // step.
  double step_seconds = 0;
};

// The report of a validation or test pass, or of a training epoch with its running metrics. Only on
// rank 0.
struct EpochReport {
  std::string split;  // train | validation | test
  int64_t epoch = 0;  // Counts from 0.
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
  int64_t start_examples = 0;                     // Examples trained on before start_step.
  bool validation_due = false, test_due = false;  // True if this pass at start_step runs again.
  // The report of start_step. A lost chief may not have published it. Absent if start_step was
  // restored from a checkpoint.
  std::optional<StepReport> last_step;
  // The training metrics of the epoch, as in EpochReport, if start_step ended an epoch or the job.
  std::map<std::string, double> train_metrics;
  // The passes completed at start_step. A lost chief may not have reported them. Empty if
  // start_step was restored. Examples and seconds are not set.
  std::vector<EpochReport> passes;
  // Epochs that had begun at start_step. -1 if the observer must compute the number from the steps
  // of an epoch.
  int64_t epochs_begun = -1;
  bool finished = false;  // True if the program ended its training at start_step.
  // The step whose weights a callback has restored. 0 if the weights are those of start_step.
  int64_t weights_of = 0;
  std::optional<LossScaleReport> loss_scale;                      // Set in a float16 run.
  std::vector<std::pair<std::string, int64_t>> split_sizes;       // "train" -> examples.
  std::vector<std::pair<std::string, int64_t>> parameter_counts;  // Model -> parameters.
  std::vector<ParameterReport> parameters;  // Parameters of all models, in their order.
  std::vector<std::string> groups;          // The lines of DescribeGroups.
};

// Images from rank 0's first replica.
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

// Scalars for summaries, each with its tag, in addition to those of StepReport.
struct ScalarReport {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

// Statistics of each embedding table after a step. Lookups, evictions and refusals are counted
// since the start of the processes that hold the tables. In the synchronous strategies the counts
// are those of rank 0, which counts only the lookups of its own replicas.
struct TablesReport {
  int64_t step = 0;
  std::vector<std::pair<std::string, push_pull::TableStatistics>> tables;
};

// Receives the reports of rank 0, for example for the progress bar, summaries and result.json. The
// loop's thread makes the calls, in the order of events. Implementations must not throw.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnStart(const StartReport&) {}
  virtual void OnStep(const StepReport&) {}
  virtual void OnEpoch(const EpochReport&) {}
  // Called if the program or a callback ends training after this step, before the end that the job
  // sets.
  virtual void OnFinish(int64_t /*step*/) {}
  // Called right before the loop passes the state after `step` to the checkpoint sink. The observer
  // must make earlier reports durable before it returns, so that a restart leaves no gap in the
  // log.
  virtual void OnSave(int64_t /*step*/) {}
  // Called for an image or a histogram that the program shows (methods `image` and `histogram` of
  // Step and Evaluation). Also called for the histogram of a parameter. `split` is its split.
  virtual void OnImages(const std::string& /*split*/, const ImageReport&) {}
  virtual void OnHistogram(const std::string& /*split*/, const HistogramReport&) {}
  virtual void OnScalars(const std::string& /*split*/, const ScalarReport&) {}
  // Called right after each OnStep if the program has embedding tables.
  virtual void OnTables(const TablesReport&) {}
  // Called for the reports of callbacks. OnText gets a text for TensorBoard's train folder, and
  // OnCallback the callback's entry in result.json.
  virtual void OnText(int64_t /*step*/, const std::string& /*tag*/, const std::string& /*text*/) {}
  virtual void OnCallback(const std::string& /*name*/, const Json& /*note*/) {}
  // Called if on_error "skip" dropped damaged examples from a step or pass. `examples` counts those
  // of all replicas. `names` has the errors of examples that no earlier report named.
  virtual void OnLeftOut(const std::string& /*split*/, int64_t /*examples*/,
                         const std::vector<std::string>& /*names*/) {}
  // Called during validation and test passes. `done` and `total` count batches.
  virtual void OnEvaluateProgress(const std::string& /*split*/, int64_t /*done*/,
                                  int64_t /*total*/) {}
};

// Returns the membership of a single process without a coordinator, as for `muster-worker --job`
// without TF_CONFIG. `cuda_devices` has one entry for each replica, or none for replicas on the
// CPU. `timeout` bounds each collective of the replicas.
std::unique_ptr<Membership> MakeLocalMembership(int num_replicas, Duration timeout,
                                                std::vector<int> cuda_devices = {});

}  // namespace muster
