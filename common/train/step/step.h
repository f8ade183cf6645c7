// One training step of a replica. A replica is one device's copy of the model, with its own thread.
// All replicas of a generation (a period of training with fixed members) run the same steps. A step
// is a transaction: it either completes on this replica or changes nothing.
//
// A step computes gradients and reduces them over all replicas. The last reduction of a step also
// has the control data: the loss, the number of examples, the increments of metrics, the values
// that the program reports, the floating-point buffers that steps change, and the stop flag. After
// the last reduction, all replicas have the same numbers. They therefore take the same decisions at
// the same step. If an error occurs before the last reduction completes, parameters, slots and
// buffers return to their values before the step. Slots are the state that an optimizer has for
// each parameter. After the last reduction, the replica completes the update.
//
// A call of minimize() may have several optimizers. The step first makes all their backward passes,
// then reduces all their gradients together, and then makes all updates.
//
// A step runs in one of two modes. A program that calls minimize() once in a step uses deferred
// mode: the update follows the last reduction. If the program calls minimize() a second time, the
// step is rolled back and repeated in immediate mode. All later steps are in immediate mode. In
// immediate mode, each minimize() reduces its gradients and updates the parameters before it
// returns. The step first copies the state, so that it can be rolled back. The last reduction then
// has only control data.
//
// With parameter servers (GradientSink::on_servers), each worker makes its steps alone, and the
// communicator has one replica. Gradients that were sent cannot be taken back. If the program calls
// minimize() a second time after gradients were sent, the step is therefore not repeated. It
// continues in immediate mode. With parameter servers, immediate mode does not copy the state.
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
  int64_t steps_done = 0;  // The number of the step is steps_done + 1.
  int64_t epoch = 0;
  int64_t global_examples = 0;  // Examples in the batch of all replicas.
  bool stop_requested = false;  // True if this process has received a stop request.
  // True if the step collects data for summaries: images and histograms that the program shows, and
  // gradient norms.
  bool summary = false;
  double input_seconds = 0;  // How long this replica waited for its slice of the batch.
};

struct StepResult {
  double loss = 0;
  double learning_rate = 0;                      // Rate of the first optimizer.
  std::map<std::string, double> learning_rates;  // Keyed by optimizer.
  // The L2 norm of each optimizer's gradients before clipping, keyed by optimizer. Set if
  // StepPlan::summary is true.
  std::map<std::string, double> gradient_norms;
  int64_t examples = 0;                  // Examples of all replicas.
  std::map<std::string, double> values;  // Values that the program reports, by name.
  // The sum of the weights of each value that was reported with weights. A mean over several steps
  // needs this sum.
  std::map<std::string, double> value_weights;
  // The numbers that the step adds to the sums of the program's metrics, in the order of
  // declaration.
  std::vector<double> metric_increments;
  bool stop = false;  // True if any process has received a stop request.
  // True if the step updated nothing, because a float16 gradient had overflowed.
  bool skipped = false;
  double loss_scale = 0;  // The float16 loss scale of the next step. 0 for other precisions.
  // Seconds that this replica computed, and seconds that it waited for other replicas or servers.
  double compute_seconds = 0, wait_seconds = 0;
  double input_seconds = 0;  // The longest StepPlan::input_seconds of any replica.
  SummaryData summary;
};

struct StepRunnerOptions {
  int replica = 0;  // The index of the replica in the generation.
  int num_replicas = 1;
  // The worker's index, with parameter servers only. Several workers may compute a step with the
  // same number. The index is part of all seeds, so that the random numbers of these workers
  // differ.
  int worker = 0;
  // True for the first replica of the process. It seeds LibTorch's default CPU generator, which all
  // replicas of the process share.
  bool first_local = true;
  int local_replicas = 1;  // Replicas of this process.
  // True if the step refuses calls that parameter-server jobs do not support.
  bool for_servers = false;
  int64_t global_batch_size = 1;
  // Called when the phase (common/base/phase.h) of the step changes. May be null.
  std::function<void(Phase)> on_phase;
};

class StepRunner {
 public:
  // `replica`, `communicator` and `job` must outlive the result. REQUIRES:
  // replica->Attach(communicator, ...) was called.
  static std::unique_ptr<StepRunner> Make(Replica* replica, collective::Communicator* communicator,
                                          const Job& job, StepRunnerOptions options);
  virtual ~StepRunner() = default;

  using Body = std::function<void(Step&, const data::Batch&)>;
  // Runs one step. `batch` is this replica's slice of the global batch, with `local_examples`
  // examples, possibly 0. `body` is the program's code for the step, and is called for each
  // micro-batch, a part of the slice. If the step is repeated, `body` runs again. Blocks until all
  // reductions are complete.
  virtual absl::StatusOr<StepResult> Run(const StepPlan& plan, const data::Batch& batch,
                                         int64_t local_examples, const Body& body) = 0;

  // Stores the current values of the buffers. To detect changes, later steps compare the buffers
  // with these values (step_buffers.h). Called when the replica has received the state of the
  // generation. If Begin was not called before the first Run, Run calls it.
  virtual void Begin() = 0;

  // Return and set the state of the dynamic float16 loss scale (LossScaler::state). The state is
  // part of the training state that a new process of the job receives.
  virtual std::vector<double> scaler_state() const = 0;
  virtual void set_scaler_state(const std::vector<double>& state) = 0;
};

// Returns a seed that depends on all arguments (splitmix64). All random numbers of a step are a
// function of the job's seed, the step, the replica and the micro-batch.
uint64_t MixSeed(uint64_t seed, std::initializer_list<uint64_t> parts);

}  // namespace muster
