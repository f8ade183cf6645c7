// What the training loop needs from the cluster, and what it tells the outside: two seams. worker/
// implements Membership over the coordinator's session; LocalMembership (below) is the world of one
// process. chief/ implements Observer.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/phase.h"
#include "common/collective/communicator.h"
#include "common/push_pull/table_statistics.h"
#include "common/summary/histogram.h"
#include "common/train/loss_scale.h"
#include "muster/json.h"

namespace muster {

// One agreed membership. Replaced as a whole when a member is lost or joins.
struct Generation {
  bool job_done =
      false;  // the job had ended well before: nothing is left to do, and nothing is set
  uint64_t id = 0;
  std::string run_id;
  int rank = 0;
  std::vector<int> replicas_per_rank;  // by rank; size() is the world size
  int replicas_on_host = 1;            // of all members that share this host's cores
  int owner = 0;                       // the rank whose state is the newest: it broadcasts to all
  int64_t owner_step = 0;              // steps that state has done
  // One for each local replica, replica-ranked over the whole generation.
  std::vector<std::unique_ptr<Communicator>> replicas;
  int world_size() const { return static_cast<int>(replicas_per_rank.size()); }
};

class Membership {
 public:
  virtual ~Membership() = default;
  // Joins, or rejoins after an abort, and returns once the generation is formed. Errors are
  // verdicts: the loop ends with it. `last_step` is the number of the last step whose update this
  // process holds.
  virtual absl::StatusOr<Generation> NextGeneration(int64_t last_step) = 0;
  // Any thread, cheap: what this process is doing from now on, for heartbeats. The step is the one
  // under way.
  virtual void SetPhase(Phase phase, int64_t step) = 0;
  // A collective failed: returns why the generation ended as the coordinator sees it (within its
  // deadlines), which is a better story than the local error (a reset connection). `local` is
  // reported to the coordinator first.
  virtual absl::Status Explain(const absl::Status& local) = 0;
  // This process's own failure (program, data): reported before anything else, so that the verdict
  // names it.
  virtual void ReportFailure(const absl::Status& failure) = 0;
  // Any thread: this process was asked to stop (SIGTERM or SIGINT).
  virtual void RequestStop() = 0;
  // RequestStop was called, or the coordinator wishes a stop. Read once a step.
  virtual bool StopRequested() const = 0;
  // The loop is through: OK, or Preempted after a stop at an agreed step. Tells the coordinator and
  // returns the verdict for this process (`outcome` itself when all ended alike).
  virtual absl::Status Finish(int64_t last_step, const absl::Status& outcome) = 0;
  // After Explain or Finish: false where only the generation is over, and the next one is to be
  // joined (NextGeneration).
  virtual bool JobEnded() const { return true; }
};

// After each committed step, on rank 0 only. Everything here is global (reduced over all replicas).
struct StepReport {
  int64_t step = 0;           // n-th step, from 1
  int64_t epoch = 0;          // from 0
  int64_t step_in_epoch = 0;  // from 1
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;   // 0: not known
  double loss = 0;           // whole objective before the update, over the global batch
  double learning_rate = 0;  // of the first optimizer
  std::map<std::string, double> learning_rates;  // by optimizer
  // By optimizer: L2 norms before clipping, where what is shown was wanted of the step; with
  // parameter servers of one worker's gradients.
  std::map<std::string, double> gradient_norms;
  int64_t examples = 0;                   // of this step
  std::map<std::string, double> values;   // the program's own, reduced like losses ("d_loss")
  std::map<std::string, double> metrics;  // running example-weighted means of this epoch
  // Of a run in float16; with parameter servers the scale of the worker whose batch this was.
  std::optional<LossScaleReport> loss_scale;
  // compute and wait are of rank 0's first replica; input is of the replica that waited the longest
  // for its part of the batch. With parameter servers all are of the worker whose batch this was.
  double compute_seconds = 0, wait_seconds = 0, input_seconds = 0;
  // Since the step before.
  double total_seconds = 0;
  // What input_seconds is a part of: total_seconds, but with parameter servers, where the steps of
  // several workers overlap, what this step took its worker.
  double step_seconds = 0;
};

// After a pass over a split (train: the epoch's running metrics), on rank 0 only.
struct EpochReport {
  std::string split;  // train | validation | test
  int64_t epoch = 0;  // from 0
  int64_t step = 0;   // steps done so far
  int64_t examples = 0;
  std::map<std::string, double> metrics;  // "loss", "accuracy", ...
  double seconds = 0;
};

struct ParameterReport {
  std::string model, name;  // within the model
  std::vector<int64_t> shape;
  bool trainable = true;
};

struct StartReport {
  std::string program;
  int world_size = 0, num_replicas = 0;
  int64_t global_batch_size = 0, steps_per_epoch = 0, epochs = 0, total_steps = 0, start_step = 0;
  int64_t start_examples = 0;                     // done before start_step
  bool validation_due = false, test_due = false;  // of start_step: they come again
  // Of start_step, where some process made it in this run's memory (not before a checkpoint's
  // state): its step may not have been told of, by a chief that was lost meanwhile.
  std::optional<StepReport> last_step;
  // Where start_step ended an epoch, or the job: that epoch's, as EpochReport's.
  std::map<std::string, double> train_metrics;
  // The passes at start_step that are through, where some process made them in this run's memory:
  // they may not have been told of either. Without examples and seconds.
  std::vector<EpochReport> passes;
  // Of start_step; -1: as the steps of an epoch tell.
  int64_t epochs_begun = -1;
  bool finished = false;  // the program had ended its training there
  // The step whose weights callbacks have put back there; 0: they are the step's own.
  int64_t weights_of = 0;
  std::optional<LossScaleReport> loss_scale;                 // of a run in float16, at start_step
  std::vector<std::pair<std::string, int64_t>> split_sizes;  // "train" -> examples
  std::vector<std::pair<std::string, int64_t>> parameter_counts;  // model -> parameters
  std::vector<ParameterReport> parameters;                        // of all models, in their order
  std::vector<std::string> groups;                                // of optimizers: DescribeGroups
};

// Of rank 0's first replica.
struct ImageReport {
  std::string tag;
  int64_t step = 0;
  int count = 0, height = 0, width = 0, channels = 0;  // channels: 1 (gray), 3 (RGB) or 4 (RGBA)
  std::vector<uint8_t> pixels;                         // [count][height][width][channels]
};
struct HistogramReport {
  std::string tag;
  int64_t step = 0;
  summary::Distribution distribution;
};

// Numbers by tag, besides a step's own.
struct ScalarReport {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

// Embedding tables as they are after a step, by name. What was looked up, evicted and refused is
// counted since the processes that hold them began: in the synchronous strategies rank 0's,
// which looks up for its own replicas.
struct TablesReport {
  int64_t step = 0;
  std::vector<std::pair<std::string, TableStatistics>> tables;
};

// Rank 0's observers: progress bar, summaries, result.json. Called on the loop's thread, in order.
// Must not throw.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnStart(const StartReport&) {}
  virtual void OnStep(const StepReport&) {}
  virtual void OnEpoch(const EpochReport&) {}
  // The program ended its training after this step, before the job's own end.
  virtual void OnFinish(int64_t /*step*/) {}
  // Right before the state after `step` is handed over to be saved: what was told so far must
  // survive the process, or the log would have a hole after a restart.
  virtual void OnSave(int64_t /*step*/) {}
  // A picture or a distribution that the program showed (Step::image, Step::histogram and
  // Evaluation's), or a parameter's; `split` is where it belongs.
  virtual void OnImages(const std::string& /*split*/, const ImageReport&) {}
  virtual void OnHistogram(const std::string& /*split*/, const HistogramReport&) {}
  virtual void OnScalars(const std::string& /*split*/, const ScalarReport&) {}
  // Of programs with tables: after each step, right after it was told.
  virtual void OnTables(const TablesReport&) {}
  // Of callbacks: a text for TensorBoard's folder train, and what result.json says of one of them.
  virtual void OnText(int64_t /*step*/, const std::string& /*tag*/, const std::string& /*text*/) {}
  virtual void OnCallback(const std::string& /*name*/, const Json& /*note*/) {}
  // Damaged examples that on_error "skip" has left out of a step or pass, on all replicas, and what
  // is wrong with those that were not named before.
  virtual void OnLeftOut(const std::string& /*split*/, int64_t /*examples*/,
                         const std::vector<std::string>& /*names*/) {}
  // During validation and test passes: done and total batches.
  virtual void OnEvaluateProgress(const std::string& /*split*/, int64_t /*done*/,
                                  int64_t /*total*/) {}
};

// One process, no coordinator: the membership of `muster-worker --job` without TF_CONFIG.
// `cuda_devices`: one for each replica, or empty for replicas on the CPU. `timeout` bounds each
// collective among them.
std::unique_ptr<Membership> MakeLocalMembership(int num_replicas, Duration timeout,
                                                std::vector<int> cuda_devices = {});

}  // namespace muster
