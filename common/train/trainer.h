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

#include "common/checkpoint/file_system.h"
#include "common/train/checkpointing.h"
#include "common/train/damaged_examples.h"
#include "common/train/job.h"
#include "common/train/loop_state.h"
#include "common/train/membership.h"
#include "common/train/replica.h"
#include "common/train/replica_buffers.h"
#include "common/train/snapshot.h"

namespace muster {

struct LoopContext;
struct TrainData;

struct TrainerOptions {
  Job job;
  ProgramFactory factory;
  std::vector<c10::Device> devices;  // one replica each
  std::vector<Observer*>
      observers;  // told by rank 0's first replica only; must outlive the trainer
  CheckpointSink* checkpoints = nullptr;  // likewise; null: nothing is saved
  // How many examples of validation and test are used at the most; `muster check` needs a few.
  std::optional<int64_t> evaluated_examples;
  // central_storage: keep the variables apart from the first replica's even where that is on the
  // CPU, as they are where it is not. For tests.
  bool separate_variables = false;
  // A step may call nothing that parameter servers refuse; for `muster check`.
  bool for_servers = false;
  // What this process begins with, built or restored, is the run's state unless another process
  // holds a newer one. False in every process but the chief's: they begin with nothing.
  bool begins_run = true;
  // Of the process that begins the run: its state was lost in an interrupted transfer, and no other
  // process has one. Does not return: a process that is started in its place goes on from the last
  // checkpoint. Null: Run ends with the sentence.
  std::function<void(const std::string& why)> on_state_lost;
  // Of the cluster. After the last step passes may be made by fewer: they take no more examples at
  // once than training did.
  int declared_members = 1;
  // How often this process was started again: the cap on faults that may be the program's, which
  // one that has come through a step is not: it would come back at once.
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
  // Before Run, where training goes on from a checkpoint: in the chief's process, whose state then
  // is the newest and given to all. A ConfigurationError says what does not fit the program.
  absl::Status Restore(const checkpoint::Snapshot& snapshot);
  // Likewise, where a run begins: the weights that the job and the program name (weights.h).
  absl::Status Load(checkpoint::FileSystem& files);
  // After Load failed: Run ends with this unless other processes have a state that is newer than
  // the run's beginning.
  void EndUnlessTakenOver(absl::Status unloaded) { unloaded_ = std::move(unloaded); }
  // Trains to the end, one thread a replica. The verdict: OK, Preempted after an agreed stop, or
  // what went wrong; after an end or a stop that could not be saved, a retryable one that says so.
  absl::Status Run(Membership* membership);
  // This process has come through a step: its devices and its program work. Any thread.
  bool has_trained() const { return has_trained_; }

 private:
  explicit Trainer(TrainerOptions options) : options_(std::move(options)) {}
  // central_storage: one set of variables for all replicas.
  absl::Status CentralizeVariables();
  absl::Status MakeDatasets();
  // All replicas train, and have frozen, what the owner of the newest state has.
  void TakeOverTrainable(size_t i, const LoopContext& context, Communicator* communicator);
  void Attach(size_t i, const LoopContext& context, Communicator* communicator);
  // Until all is saved that was handed over.
  absl::Status Drain(Membership* membership);
  absl::Status RunGeneration(Generation* generation, Membership* membership);
  // One generation, from joining to its end or the job's.
  absl::Status RunOnce(Membership* membership);
  // Afterwards replica 0 holds the newest whole state of this process, if there is one.
  void GatherNewest();
  // How many replicas the whole cluster would have, going by the generation's.
  int DeclaredReplicas(int num_replicas, int world_size) const;
  // Nobody in this generation has a state.
  absl::Status StateLost(Membership* membership);

  const TrainerOptions options_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::map<Split, data::DatasetPtr> datasets_;
  std::vector<data::DatasetPtr> named_datasets_;  // by handle
  std::vector<LoopState> states_;                 // one for each replica; equal after each step
  std::vector<std::shared_ptr<const TrainData>> train_data_;  // likewise, of this generation
  SnapshotTaker snapshots_;
  DamageLog damage_log_;
  std::atomic<bool> has_trained_ = false;
  absl::Status unloaded_;      // EndUnlessTakenOver's
  StackedBuffers kept_;        // LoopContext::kept
  std::vector<char> has_own_;  // by replica: it has had its own buffers in a generation
};

}  // namespace muster
