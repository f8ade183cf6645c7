// The synchronous step of one replica, as a transaction. All replicas of a generation run the same
// steps.
//
// A step differentiates and reduces gradients, and its last reduction also carries the loss, the
// example count, the increments of metrics, the values a program reports, floating-point buffers
// and the stop flag. After it every replica holds the same global numbers and takes every decision
// at the same step. Until it has completed, an error leaves parameters, slots and buffers as they
// were before the step; from then on the update runs to its end.
//
// A minimize() may be of several optimizers: all backward passes come before the reduction, which
// is one for all of them, and all updates after it.
//
// With one minimize() a step the update follows the last reduction (deferred). A program that calls
// it twice makes the step start again in the other mode, for good: each call applies its update at
// once, over an undo copy, and the last reduction is one of control data alone.
//
// Where gradients go to parameter servers (GradientSink::updates), the communicator is of one
// replica alone, and what was launched stays: the step does not start again then, but goes on in
// the other mode, and there is no undo copy.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/train/replica.h"
#include "common/train/summary_data.h"
#include "muster/data.h"

namespace muster {

struct StepPlan {
  int64_t steps_done = 0;  // this is step steps_done + 1
  int64_t epoch = 0;
  int64_t global_examples = 0;  // in this global batch
  bool stop_requested = false;  // by this process
  bool summary = false;         // what the program shows is wanted of this replica
  double input_seconds = 0;     // that this replica waited for its part of the batch
};

struct StepResult {
  double loss = 0;
  double learning_rate = 0;                      // of the first optimizer
  std::map<std::string, double> learning_rates;  // by optimizer
  // By optimizer, before clipping, where the plan asks for a summary.
  std::map<std::string, double> gradient_norms;
  int64_t examples = 0;                  // over all replicas
  std::map<std::string, double> values;  // what the program reported
  // Of weighted values: the sum of the weights, which a mean over several steps counts them by.
  std::map<std::string, double> value_weights;
  std::vector<double> metric_increments;  // all metrics' sums, in order of declaration
  bool stop = false;                      // somebody asked for a stop: after this step
  bool skipped = false;                   // float16: gradients overflowed, no update
  double loss_scale = 0;                  // float16's, of the next step; 0: another precision
  double compute_seconds = 0, wait_seconds = 0;
  double input_seconds = 0;  // of the replica that waited for its input the longest
  SummaryData summary;
};

struct StepRunnerOptions {
  int replica = 0;  // of the generation
  int num_replicas = 1;
  // Parameter servers: tells replicas apart that compute a step of the same number; seeds only.
  int worker = 0;
  bool first_local = true;   // of this process: seeds LibTorch's shared CPU generator
  int local_replicas = 1;    // of this process
  bool for_servers = false;  // what parameter servers refuse in a step is refused
  int64_t global_batch_size = 1;
  std::function<void(Phase)> on_phase;  // may be null
};

class StepImpl;

class StepRunner {
 public:
  // REQUIRES: replica->Attach(communicator, ...) was called. Both must outlive this object.
  StepRunner(Replica* replica, Communicator* communicator, const Job& job,
             StepRunnerOptions options);
  ~StepRunner();

  using Body = std::function<void(Step&, const data::Batch&)>;
  // `batch` is this replica's slice, `local_examples` its first dimension.
  absl::StatusOr<StepResult> Run(const StepPlan& plan, const data::Batch& batch,
                                 int64_t local_examples, const Body& body);

  // The replica holds the state that the generation begins with: changes of buffers count from here
  // on. Without this call, from the first step on.
  void Begin();

  // float16's dynamic loss scale, part of the state that a new member is given.
  std::vector<double> scaler_state() const;
  void set_scaler_state(const std::vector<double>& state);

 private:
  std::unique_ptr<StepImpl> impl_;
};

// Mixes numbers into a seed (splitmix64): randomness is a function of (seed, step, replica,
// micro-batch).
uint64_t MixSeed(uint64_t seed, std::initializer_list<uint64_t> parts);

}  // namespace muster
