// One replica's way through one generation: data, steps, epochs, validation and test passes. Every
// replica runs the same code in its own thread and takes the same decisions, because it takes them
// on reduced numbers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/data/pipeline.h"
#include "common/train/membership.h"
#include "common/train/replica.h"
#include "common/train/step.h"

namespace muster {

// Values that the replicas of one process show each other. Wakes everybody when one of them gives
// up.
class LocalExchange {
 public:
  LocalExchange(int size, Duration timeout) : size_(size), timeout_(timeout), values_(size) {}
  // Blocks until every replica has put its value of this round.
  absl::StatusOr<std::vector<at::Tensor>> Exchange(int replica, const at::Tensor& value);
  void Abort(absl::Status why);

 private:
  const int size_;
  const Duration timeout_;
  absl::Mutex mutex_;
  std::vector<at::Tensor> values_ ABSL_GUARDED_BY(mutex_);
  std::vector<at::Tensor> result_ ABSL_GUARDED_BY(mutex_);
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

// What all replicas of the process share during a generation.
struct LoopContext {
  const Job& job;
  const std::map<Split, data::DatasetPtr>& datasets;
  Membership* membership;
  const std::vector<Observer*>& observers;
  LocalExchange* exchange;
  int64_t global_batch_size;
  int num_replicas;   // of the generation
  int first_replica;  // this process's first one in the generation
  int owner_replica;  // whose state is broadcast
  int world_size;
};

// What a step moves forward, apart from the replica's tensors.
struct LoopState {
  int64_t steps = 0;
  data::Position position;
  double epoch_loss_sum = 0;  // of loss x examples in this epoch so far
  int64_t epoch_examples = 0;
  std::vector<double> epoch_metric_sums;
};

// The global batches of the training data. The job's drop_remainder goes before the program's.
data::Sampler TrainSampler(const Job& job, const Replica& replica, int64_t examples,
                           int64_t global_batch_size);
// How many steps the job makes; without epochs and max_steps it is one epoch.
int64_t TotalSteps(const Job& job, int64_t steps_per_epoch);

class LoopImpl {
 public:
  LoopImpl(const LoopContext& context, Replica* replica, Communicator* communicator,
           int local_index);
  ~LoopImpl();

  // Broadcasts the newest state, then runs the program's own run().
  absl::Status Run();

  void Fit();
  bool Next(data::Batch* batch);
  void RunStep(const StepRunner::Body& body);
  std::map<std::string, double> Evaluate(Split split);
  at::Tensor Reduce(const at::Tensor& value, ReduceOp op);
  at::Tensor Gather(const at::Tensor& value);
  std::vector<at::Tensor> LocalResults(const at::Tensor& value);
  const LoopState& state() const { return state_; }

 private:
  bool first_local() const { return local_index_ == 0; }
  bool reporter() const { return first_local() && context_.first_replica == 0; }
  void Enter(Phase phase) {
    if (first_local()) context_.membership->SetPhase(phase, state_.steps + 1);
  }
  absl::Status BroadcastState();
  void BroadcastTensors(const std::vector<at::Tensor>& tensors);
  std::vector<double> SumOverReplicas(const std::vector<double>& values);
  void CheckReplicasEqual();
  void ReportStart();
  void ReportStep(const StepResult& result);
  void EndEpoch();
  void ReportEpoch(Split split, int64_t epoch, int64_t examples, double seconds,
                   const std::map<std::string, double>& metrics);
  std::map<std::string, double> MetricResults(const double* sums) const;
  bool Finished() const;

  const LoopContext context_;
  Replica* const replica_;
  Communicator* const communicator_;
  const int local_index_;
  const int global_replica_;
  StepRunner runner_;
  data::Sampler sampler_;
  std::unique_ptr<data::Pipeline> pipeline_;
  LoopState state_;
  data::LoadedBatch loaded_;
  bool have_batch_ = false;
  bool stop_ = false;
  bool epoch_ended_ = false;
  double input_seconds_ = 0;
  MonotonicTime epoch_start_, step_start_;
};

}  // namespace muster
