// Trains a job's program on the replicas of this process. The replicas are built once, and then
// train in one generation after another.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/files/file_system.h"
#include "common/job/job.h"
#include "common/train/damaged_examples.h"
#include "common/train/loop_state.h"
#include "common/train/membership.h"
#include "common/train/replica/replica.h"
#include "common/train/replica/replica_buffers.h"
#include "common/train/state/checkpointing.h"
#include "common/train/state/snapshot.h"

namespace muster {

class LocalExchange;
struct LoopContext;
class SharedPipelines;
class TaskMeter;
struct TrainData;

struct TrainerOptions {
  Job job;
  ProgramFactory factory;
  std::vector<c10::Device> devices;  // One replica runs on each device.
  // Only rank 0's first replica calls them. Must outlive the trainer.
  std::vector<Observer*> observers;
  // Only rank 0's first replica calls it. Must outlive the trainer. Null if the job saves nothing.
  CheckpointSink* checkpoints = nullptr;
  // The maximum number of examples in the validation split, and in the test split. Set by `muster
  // check`, which needs only a few.
  std::optional<int64_t> evaluated_examples;
  // In the central_storage strategy, the variables and the first replica's parameters are separate
  // tensors even on the CPU. For tests.
  bool separate_variables = false;
  // Steps refuse the calls that parameter servers do not support. Used by `muster check`.
  bool for_servers = false;
  // True only in the chief's process. The initial state of that process, built or restored, is the
  // run's state unless another process has a newer one. All other processes start without a state.
  bool begins_run = true;
  // Called in the process with `begins_run` if an interrupted transfer destroyed its state and no
  // other process has one. The function ends the process, and its replacement resumes from the last
  // checkpoint. If null, Run fails with the message `why`.
  std::function<void(const std::string& why)> on_state_lost;
  // The number of members of the whole cluster. After the last step, fewer members may make the
  // passes. A replica then takes no more examples at once than with all members.
  int declared_members = 1;
  // How many times this process was restarted. After several restarts, an error with an uncertain
  // cause is treated as an error of the program. This does not apply once the process has completed
  // a step, because an error of the program would have occurred before.
  int restarts = 0;
  TaskMeter* meter = nullptr;  // Measures the steps. Must outlive the trainer. May be null.
};

class Trainer {
 public:
  // Builds the replicas and datasets. Returns a ProgramError, ConfigurationError or DataError.
  static absl::StatusOr<std::unique_ptr<Trainer>> Make(TrainerOptions options);
  ~Trainer();

  int num_replicas() const { return static_cast<int>(replicas_.size()); }
  const Replica& replica() const { return *replicas_.at(0); }
  Replica& replica() { return *replicas_.at(0); }
  const std::map<Split, data::DatasetPtr>& datasets() const { return datasets_; }
  // Resumes from a checkpoint. Called before Run in the chief's process. The restored state is then
  // the newest, and all replicas receive it. Returns a ConfigurationError that says why the
  // checkpoint does not fit the program.
  absl::Status Restore(const checkpoint::Snapshot& snapshot);
  // Loads the initial weights that the job and the program name (weights.h). Called before Run in
  // the chief's process.
  absl::Status Load(checkpoint::FileSystem& files);
  // Called after Load failed with `unloaded`. Run then returns that error, unless other processes
  // have a state newer than the start of the run.
  void EndUnlessTakenOver(absl::Status unloaded) { unloaded_ = std::move(unloaded); }
  // Trains to the end of the job, with one thread for each replica. Returns the verdict: OK,
  // Preempted after an agreed stop, or the error. If the final state could not be saved, the error
  // is retryable.
  absl::Status Run(Membership* membership);
  // Thread-safe. Returns true if this process has completed a step, which shows that its devices
  // and its program work.
  bool has_trained() const { return has_trained_; }

 private:
  explicit Trainer(TrainerOptions options) : options_(std::move(options)) {}
  // In the central_storage strategy, makes one set of variables for all replicas.
  absl::Status CentralizeVariables();
  absl::Status MakeDatasets();
  // Makes replica `i` train and freeze the same parameters as the owner of the newest state.
  void TakeOverTrainable(size_t i, const LoopContext& context,
                         collective::Communicator* communicator);
  void Attach(size_t i, const LoopContext& context, collective::Communicator* communicator);
  // Sets up replica `i` and runs its loop to the end of the generation. Called in the replica's
  // thread.
  absl::Status RunReplica(size_t i, const LoopContext& context,
                          collective::Communicator* communicator);
  // Blocks until the sink has saved every state that it received.
  absl::Status Drain(Membership* membership);
  // Runs the loops of all replicas of this process. Returns when the last one has ended, with the
  // error that says most.
  absl::Status RunGeneration(Generation* generation, Membership* membership);
  // Returns the argument of EndUnlessTakenOver if no process has a state newer than the start of
  // the run. Otherwise returns OK, and logs a warning unless this process has such a state.
  absl::Status CheckLoaded(const Generation& generation) const;
  // Returns what the loops of a generation share. The objects behind the pointers must outlive it.
  LoopContext ContextOf(const Generation& generation, Membership* membership,
                        LocalExchange* exchange, SharedPipelines* pipelines);
  void LogReplicas(const LoopContext& context, int threads) const;
  // Joins the next generation and runs it to its end, or to the end of the job.
  absl::Status RunOnce(Membership* membership);
  // Copies the newest whole state of this process, if there is one, to replica 0.
  void GatherNewest();
  // Returns an estimate of the number of replicas in the whole cluster: declared_members times the
  // mean number of replicas of this generation's members.
  int DeclaredReplicas(int num_replicas, int world_size) const;
  // Called if no member of this generation has a state. Returns the error that ends the generation.
  absl::Status StateLost(Membership* membership);

  const TrainerOptions options_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::map<Split, data::DatasetPtr> datasets_;
  std::vector<data::DatasetPtr> named_datasets_;  // Indexed by handle.
  std::vector<LoopState> states_;  // One for each replica. All are equal after each step.
  // One for each replica. Valid during a generation.
  std::vector<std::shared_ptr<const TrainData>> train_data_;
  SnapshotTaker snapshots_;
  DamageLog damage_log_;
  std::atomic<bool> has_trained_ = false;
  absl::Status unloaded_;  // Argument of EndUnlessTakenOver.
  StackedBuffers kept_;    // LoopContext::kept.
  // Indexed by replica: 1 if the replica already has kPerReplica buffers of its own from an earlier
  // generation.
  std::vector<char> has_own_;
};

}  // namespace muster
