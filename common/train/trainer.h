// Trains a job's program in this process. A replica is one device's copy of the model, with its own
// thread while it trains. A member is a process that trains. A generation is a period of training
// with fixed members.
//
// A Trainer builds the replicas of this process once. The replicas then train in one generation
// after another.
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
#include "common/train/input/damaged_examples.h"
#include "common/train/membership.h"
#include "common/train/observer.h"
#include "common/train/replica/replica.h"
#include "common/train/replica/replica_buffers.h"
#include "common/train/state/checkpointing.h"
#include "common/train/state/loop_state.h"
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
  // The receivers of the training reports. Only the first replica of rank 0 calls the observers.
  // The observers must outlive the trainer.
  std::vector<Observer*> observers;
  // The writer of checkpoints. Only the first replica of rank 0 calls it. Must outlive the trainer.
  // Null if the job saves nothing.
  CheckpointSink* checkpoints = nullptr;
  // If set, the validation and test splits are each cut to this number of examples. `muster check`
  // sets this field, because a few examples are enough for the check.
  std::optional<int64_t> evaluated_examples;
  // Affects only the central_storage strategy (exchange/central_storage.h) with a first replica on
  // the CPU. If true, that replica computes with a copy of the variables, and not with the
  // variables themselves. For tests.
  bool separate_variables = false;
  // If true, steps refuse the calls of the program that parameter-server jobs do not support. Set
  // by `muster check`.
  bool for_servers = false;
  // True only in the chief's process. The initial state of that process, new or restored from a
  // checkpoint, is the state of the run. If another process has a newer state, the newer state
  // counts. Processes of other tasks start without a state.
  bool begins_run = true;
  // Called in the process with `begins_run` if no process has a complete state. This happens if the
  // only process with a state is lost while it sends the state to other processes. The function
  // must end this process. The next process of this task resumes from the newest checkpoint. If the
  // function is null, the generation ends with a PeerLost error that has the message `why`.
  std::function<void(const std::string& why)> on_state_lost;
  // The number of members in the whole cluster. Fewer members may take part in an evaluation pass,
  // for example if some have left after the job's final step. The batch of each replica in that
  // pass then stays as small as with all members.
  int declared_members = 1;
  // How many times this process was restarted. Some errors before the first completed step of a
  // process may come from the device or from the program. After several restarts, such an error
  // counts as an error of the program.
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
  // Sets the state of this process to the state in a checkpoint. Called before Run, in the chief's
  // process. Run then sends the state to all replicas, unless another process has a newer state. If
  // the checkpoint does not fit the program, returns a ConfigurationError with the reason.
  absl::Status Restore(const checkpoint::Snapshot& snapshot);
  // Loads the initial weights that the job and the program name (state/weights.h). Called before
  // Run, in the chief's process.
  absl::Status Load(checkpoint::FileSystem& files);
  // Called after Load failed with `unloaded`. If no process has completed a step of this run, Run
  // then returns `unloaded`. If a process has completed a step, Run ignores the error, because the
  // weights are not needed.
  void EndUnlessTakenOver(absl::Status unloaded) { unloaded_ = std::move(unloaded); }
  // Trains to the end of the job, with one thread for each replica. Returns the final status:
  // OK at the end of training, Preempted if all replicas stopped on request, or an error. If
  // the final state could not be saved, the error is retryable: a restart of the task may
  // succeed.
  absl::Status Run(Membership* membership);
  // Thread-safe. Returns true if this process has completed a step. Its devices and its program
  // then work.
  bool has_trained() const { return has_trained_; }

 private:
  explicit Trainer(TrainerOptions options) : options_(std::move(options)) {}
  // Makes one set of variables for all replicas. Called only in the central_storage strategy.
  absl::Status CentralizeVariables();
  absl::Status MakeDatasets();
  // Makes replica `i` train and freeze the same parameters as the owner of the newest state
  // (Generation::owner).
  void TakeOverTrainable(size_t i, const LoopContext& context,
                         collective::Communicator* communicator);
  // Prepares replica `i` for a generation: batch size, data, schedules and gradient buckets.
  void Attach(size_t i, const LoopContext& context, collective::Communicator* communicator);
  // Calls Attach, and runs the loop of replica `i` to the end of the generation. Called in the
  // replica's thread.
  absl::Status RunReplica(size_t i, const LoopContext& context,
                          collective::Communicator* communicator);
  // Blocks until the checkpoint sink has written every state that it received.
  absl::Status Drain(Membership* membership);
  // Runs the loops of all replicas of this process, and returns when the last loop has ended. If
  // several replicas fail, returns the error that best describes the cause.
  absl::Status RunGeneration(Generation* generation, Membership* membership);
  // Returns the argument of EndUnlessTakenOver if no process has completed a step of this run.
  // Otherwise returns OK. Logs a warning if the argument is an error and this process has completed
  // no step itself.
  absl::Status CheckLoaded(const Generation& generation) const;
  // Returns the objects that the loops of a generation share. `membership`, `exchange` and
  // `pipelines` must outlive the generation.
  LoopContext ContextOf(const Generation& generation, Membership* membership,
                        LocalExchange* exchange, SharedPipelines* pipelines);
  void LogReplicas(const LoopContext& context, int threads) const;
  // Joins the next generation, and runs it to its end. Returns at once if the job has ended.
  absl::Status RunOnce(Membership* membership);
  // Copies the newest complete state of this process to replica 0, if a complete state exists.
  // Called after a generation, because some replicas may have completed one step more than others.
  void GatherNewest();
  // Returns an estimate of the number of replicas in the whole cluster: declared_members times the
  // mean number of replicas of this generation's members. All members get the same result.
  int DeclaredReplicas(int num_replicas, int world_size) const;
  // Called if no member of this generation has a state. In the process with `begins_run`, calls
  // on_state_lost. Returns the error that ends the generation.
  absl::Status StateLost(Membership* membership);

  const TrainerOptions options_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::map<Split, data::DatasetPtr> datasets_;
  std::vector<data::DatasetPtr> named_datasets_;  // Indexed by DatasetHandle::index.
  // Indexed by replica: the state of the replica's loop.
  std::vector<LoopState> states_;
  // One element for each replica during a generation. Empty between generations.
  std::vector<std::shared_ptr<const TrainData>> train_data_;
  SnapshotTaker snapshots_;
  DamageLog damage_log_;
  std::atomic<bool> has_trained_ = false;
  absl::Status unloaded_;  // Argument of EndUnlessTakenOver.
  // As LoopContext::kept: the kPerReplica buffers (replica/replica_buffers.h) of the last save or
  // restore.
  StackedBuffers kept_;
  // Indexed by replica. 1 if the replica has its own kPerReplica buffers from an earlier
  // generation. Such a replica must not receive other buffers.
  std::vector<char> has_own_;
};

}  // namespace muster
