// Trains a job's program on this process's replicas: builds them once, then runs them through one
// generation after another.
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

struct LoopContext;
struct TrainData;

struct TrainerOptions {
  Job job;
  ProgramFactory factory;
  std::vector<c10::Device> devices;  // One replica each.
  // Called by rank 0's first replica only. Must outlive the trainer.
  std::vector<Observer*> observers;
  // Called by rank 0's first replica only. Must outlive the trainer. Null: nothing is saved.
  CheckpointSink* checkpoints = nullptr;
  // The maximum number of validation and of test examples. `muster check` needs only a few.
  std::optional<int64_t> evaluated_examples;
  // central_storage: keeps the variables apart from the first replica's even on the CPU, as on
  // other devices. For tests.
  bool separate_variables = false;
  // Steps refuse the same calls as with parameter servers. For `muster check`.
  bool for_servers = false;
  // This process's initial state, built or restored, is the run's state unless another process
  // holds a newer one. True only in the chief's process: the others start without a state.
  bool begins_run = true;
  // Called in the process with `begins_run`, if its state was lost in an interrupted transfer and
  // no other process has one. Does not return: a replacement process resumes from the last
  // checkpoint. Null: Run ends with the message.
  std::function<void(const std::string& why)> on_state_lost;
  // Members of the whole cluster. After the last step, fewer members may make the passes. A replica
  // then takes no more examples at once than with all members.
  int declared_members = 1;
  // The number of times that this process was restarted. After several restarts, a fault that may
  // be the program's is treated as the program's. Once this process has completed a step, it is
  // not, because a fault of the program would have recurred before.
  int restarts = 0;
};

class Trainer {
 public:
  // Builds the replicas and datasets. Errors: ProgramError, ConfigurationError, DataError.
  static absl::StatusOr<std::unique_ptr<Trainer>> Make(TrainerOptions options);
  ~Trainer();

  int num_replicas() const { return static_cast<int>(replicas_.size()); }
  const Replica& replica() const { return *replicas_.at(0); }
  Replica& replica() { return *replicas_.at(0); }
  const std::map<Split, data::DatasetPtr>& datasets() const { return datasets_; }
  // Called before Run in the chief's process, to resume from a checkpoint. The restored state is
  // then the newest, and all replicas receive it. Returns a ConfigurationError that says how the
  // checkpoint does not fit the program.
  absl::Status Restore(const checkpoint::Snapshot& snapshot);
  // Called before Run in the chief's process, to start a run with the weights that the job and the
  // program name (weights.h).
  absl::Status Load(checkpoint::FileSystem& files);
  // Called after Load failed. Run ends with this error unless other processes hold a state that is
  // newer than the start of the run.
  void EndUnlessTakenOver(absl::Status unloaded) { unloaded_ = std::move(unloaded); }
  // Trains to the end, with one thread for each replica. Returns the verdict: OK, Preempted after
  // an agreed stop, or the error. If the final state could not be saved, returns a retryable error
  // that says so.
  absl::Status Run(Membership* membership);
  // Thread-safe. Returns whether this process has completed a step, which shows that its devices
  // and its program work.
  bool has_trained() const { return has_trained_; }

 private:
  explicit Trainer(TrainerOptions options) : options_(std::move(options)) {}
  // central_storage: makes one set of variables for all replicas.
  absl::Status CentralizeVariables();
  absl::Status MakeDatasets();
  // Makes all replicas train and freeze the same parameters as the owner of the newest state.
  void TakeOverTrainable(size_t i, const LoopContext& context, Communicator* communicator);
  void Attach(size_t i, const LoopContext& context, Communicator* communicator);
  // Blocks until every state that was handed to the sink is saved.
  absl::Status Drain(Membership* membership);
  absl::Status RunGeneration(Generation* generation, Membership* membership);
  // Runs one generation, from joining to its end or the job's.
  absl::Status RunOnce(Membership* membership);
  // Copies the newest whole state of this process, if there is one, to replica 0.
  void GatherNewest();
  // Returns an estimate of the whole cluster's replicas, in proportion to those of the generation's
  // members.
  int DeclaredReplicas(int num_replicas, int world_size) const;
  // Called if no member of this generation has a state.
  absl::Status StateLost(Membership* membership);

  const TrainerOptions options_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::map<Split, data::DatasetPtr> datasets_;
  std::vector<data::DatasetPtr> named_datasets_;  // Indexed by handle.
  std::vector<LoopState> states_;                 // One for each replica. Equal after each step.
  // One for each replica, valid in this generation.
  std::vector<std::shared_ptr<const TrainData>> train_data_;
  SnapshotTaker snapshots_;
  DamageLog damage_log_;
  std::atomic<bool> has_trained_ = false;
  absl::Status unloaded_;      // Argument of EndUnlessTakenOver.
  StackedBuffers kept_;        // See LoopContext::kept.
  std::vector<char> has_own_;  // Indexed by replica: it has had its own buffers in a generation.
};

}  // namespace muster
