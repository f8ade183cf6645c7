// The synchronous step of one replica, as a transaction. All replicas of a generation run the same
// steps.
//
// A step computes and reduces gradients. Its last reduction also carries the loss, the example
// count, the increments of metrics, the program's reported values, floating-point buffers and the
// stop flag. Afterwards every replica holds the same global numbers and takes every decision at the
// same step. Before that reduction completes, an error leaves parameters, slots and buffers as they
// were before the step. After it, the update runs to its end.
//
// A minimize() may have several optimizers. All backward passes come first, then one reduction for
// all of them, then all updates.
//
// With one minimize() in a step, the update follows the last reduction (deferred mode). If a
// program calls minimize() twice, the step starts again in immediate mode, and later steps stay in
// it. Each call then applies its update at once, with an undo copy, and the last reduction has only
// control data.
//
// With parameter servers (GradientSink::updates) the communicator has one replica, and launched
// gradients cannot be taken back. Then the step does not start again but continues in immediate
// mode, without an undo copy.
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
  int64_t steps_done = 0;  // This is step steps_done + 1.
  int64_t epoch = 0;
  int64_t global_examples = 0;  // Examples in this global batch.
  bool stop_requested = false;  // This process requests a stop.
  bool summary = false;         // This replica collects what the program shows.
  double input_seconds = 0;     // Time that this replica waited for its part of the batch.
};

struct StepResult {
  double loss = 0;
  double learning_rate = 0;                      // Rate of the first optimizer.
  std::map<std::string, double> learning_rates;  // Keyed by optimizer.
  // Keyed by optimizer. The norm before clipping, if the plan requests a summary.
  std::map<std::string, double> gradient_norms;
  int64_t examples = 0;                  // Over all replicas.
  std::map<std::string, double> values;  // Reported by the program.
  // The sum of the weights of each weighted value, for a mean over several steps.
  std::map<std::string, double> value_weights;
  std::vector<double> metric_increments;  // All metrics' sums, in order of declaration.
  bool stop = false;                      // A process requested a stop after this step.
  bool skipped = false;                   // float16: gradients overflowed, no update.
  double loss_scale = 0;                  // float16: of the next step. 0: another precision.
  double compute_seconds = 0, wait_seconds = 0;
  double input_seconds = 0;  // The longest wait of any replica for its input.
  SummaryData summary;
};

struct StepRunnerOptions {
  int replica = 0;  // Index in the generation.
  int num_replicas = 1;
  // Parameter servers: the worker's index. It changes the seeds, because several workers compute a
  // step of the same number.
  int worker = 0;
  bool first_local = true;   // First of this process: it seeds LibTorch's shared CPU generator.
  int local_replicas = 1;    // Replicas of this process.
  bool for_servers = false;  // Refuse in a step what parameter servers refuse.
  int64_t global_batch_size = 1;
  std::function<void(Phase)> on_phase;  // May be null.
};

class StepImpl;

class StepRunner {
 public:
  // Requires that replica->Attach(communicator, ...) was called. Both must outlive this object.
  StepRunner(Replica* replica, Communicator* communicator, const Job& job,
             StepRunnerOptions options);
  ~StepRunner();

  using Body = std::function<void(Step&, const data::Batch&)>;
  // `batch` is this replica's slice. `local_examples` is its first dimension.
  absl::StatusOr<StepResult> Run(const StepPlan& plan, const data::Batch& batch,
                                 int64_t local_examples, const Body& body);

  // Called when the replica holds the generation's initial state. Changes of buffers are detected
  // relative to the values at this call. Without it, they are relative to the first step.
  void Begin();

  // The dynamic loss scale of float16. Part of the state that a new member receives.
  std::vector<double> scaler_state() const;
  void set_scaler_state(const std::vector<double>& state);

 private:
  std::unique_ptr<StepImpl> impl_;
};

// Mixes numbers into a seed (splitmix64). All randomness is a function of (seed, step, replica,
// micro-batch).
uint64_t MixSeed(uint64_t seed, std::initializer_list<uint64_t> parts);

}  // namespace muster
