// One training step of a replica, which is a transaction: it either completes on this replica or
// changes nothing. All replicas of a generation run the same steps.
//
// A step computes gradients and reduces them over all replicas. The last reduction also has the
// control data: the loss, the example count, the increments of metrics, the program's reported
// values, the floating-point buffers that steps change, and the stop flag. After it, all replicas
// have the same numbers and therefore take the same decisions at the same step. If an error occurs
// before the last reduction completes, parameters, slots and buffers return to their values before
// the step. After the reduction, the replica completes the update.
//
// A call of minimize() may have several optimizers. The step makes all backward passes first, then
// one reduction for all optimizers, then all updates.
//
// A step has two modes. In deferred mode, a step has one minimize(), and the update follows the
// last reduction. If a program calls minimize() a second time, the step starts again in immediate
// mode, which later steps keep. In immediate mode, each minimize() applies its update at once,
// after an undo copy is made. The last reduction then has only control data.
//
// With parameter servers (GradientSink::updates), the communicator has one replica. Gradients that
// were sent cannot be taken back. The step therefore does not start again: it continues in
// immediate mode, without an undo copy.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/train/replica/replica.h"
#include "common/train/summary_data.h"
#include "muster/data.h"

namespace muster {

struct StepPlan {
  int64_t steps_done = 0;  // The step to run is steps_done + 1.
  int64_t epoch = 0;
  int64_t global_examples = 0;  // Examples in this global batch.
  bool stop_requested = false;  // This process requests a stop.
  bool summary = false;  // This replica collects the images and histograms that the program shows.
  double input_seconds = 0;  // Time that this replica waited for its part of the batch.
};

struct StepResult {
  double loss = 0;
  double learning_rate = 0;                      // Rate of the first optimizer.
  std::map<std::string, double> learning_rates;  // Keyed by optimizer.
  // The norm before clipping, keyed by optimizer. Set if the plan requests a summary.
  std::map<std::string, double> gradient_norms;
  int64_t examples = 0;                  // Examples of all replicas.
  std::map<std::string, double> values;  // Reported by the program.
  // The sum of the weights of each weighted value, for a mean over several steps.
  std::map<std::string, double> value_weights;
  std::vector<double> metric_increments;  // Sums of all metrics, in the order of declaration.
  bool stop = false;                      // A process has requested a stop.
  bool skipped = false;                   // float16: a gradient overflowed, so nothing was updated.
  double loss_scale = 0;  // float16: the scale of the next step. 0 for other precisions.
  double compute_seconds = 0, wait_seconds = 0;
  double input_seconds = 0;  // The longest wait of any replica for its input.
  SummaryData summary;
};

struct StepRunnerOptions {
  int replica = 0;  // Index in the generation.
  int num_replicas = 1;
  // With parameter servers, the worker's index. It is part of the seeds, because several workers
  // may compute a step with the same number.
  int worker = 0;
  // True for the process's first replica. It seeds LibTorch's CPU generator, which all replicas of
  // the process share.
  bool first_local = true;
  int local_replicas = 1;    // Replicas of this process.
  bool for_servers = false;  // Refuse the calls that parameter servers do not support.
  int64_t global_batch_size = 1;
  std::function<void(Phase)> on_phase;  // May be null.
};

class StepImpl;

class StepRunner {
 public:
  // REQUIRES: replica->Attach(communicator, ...) was called. Both must outlive this object.
  StepRunner(Replica* replica, collective::Communicator* communicator, const Job& job,
             StepRunnerOptions options);
  ~StepRunner();

  using Body = std::function<void(Step&, const data::Batch&)>;
  // Runs one step. `batch` is this replica's slice, and `local_examples` its first dimension.
  // `body` is the program's code for the step, and runs once for each micro-batch. Blocks until the
  // reductions are complete.
  absl::StatusOr<StepResult> Run(const StepPlan& plan, const data::Batch& batch,
                                 int64_t local_examples, const Body& body);

  // Makes the current values of buffers the reference for detecting changes. Called when the
  // replica has the generation's initial state. If it is not called, the first step calls it.
  void Begin();

  // The state of the dynamic loss scale (float16). New members receive it.
  std::vector<double> scaler_state() const;
  void set_scaler_state(const std::vector<double>& state);

 private:
  std::unique_ptr<StepImpl> impl_;
};

// Returns a seed that depends on all arguments (splitmix64). All randomness in a step is a function
// of seed, step, replica and micro-batch.
uint64_t MixSeed(uint64_t seed, std::initializer_list<uint64_t> parts);

}  // namespace muster
