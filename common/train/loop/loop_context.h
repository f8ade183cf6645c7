// The objects that training loops share. A replica is one device's copy of the model, with its own
// thread and loop. A member is a process that trains, with one or more replicas. A generation is a
// period of training with fixed members.
#pragma once

#include <map>
#include <vector>

#include "common/base/phase.h"
#include "common/collective/communicator.h"
#include "common/job/job.h"
#include "common/train/exchange/local_exchange.h"
#include "common/train/input/damaged_examples.h"
#include "common/train/input/loop_data.h"
#include "common/train/membership.h"
#include "common/train/observer.h"
#include "common/train/replica/replica.h"
#include "common/train/replica/replica_buffers.h"
#include "common/train/state/checkpointing.h"
#include "common/train/state/loop_state.h"
#include "common/train/state/snapshot.h"

namespace muster {

class TaskMeter;

// The objects that the loops of all replicas of one process share during one generation.
struct LoopContext {
  const Job& job;
  const std::map<Split, data::DatasetPtr>& datasets;
  // Datasets that the program declares besides its splits. Indexed by DatasetHandle::index.
  const std::vector<data::DatasetPtr>& named_datasets;
  Membership* membership;
  const std::vector<Observer*>& observers;
  CheckpointSink* checkpoints;  // The writer of checkpoints. Null if the job saves nothing.
  SnapshotTaker* snapshots;     // Copies the training state for a checkpoint.
  // The kPerReplica buffers (replica/replica_buffers.h) of all replicas at the last save or
  // restore. Rank 0 sends them to replicas of new processes.
  StackedBuffers* kept;
  LocalExchange* exchange;  // Exchanges values among the replicas of this process.
  int num_replicas;         // Replicas in the generation.
  int first_replica;        // Index of this process's first replica in the generation.
  // The index of the replica that has the newest state and sends this state to all others.
  int owner_replica;
  int world_size;          // Members of the generation.
  int local_replicas = 1;  // Replicas of this process.
  // True if steps refuse calls that parameter-server jobs do not support (StepRunnerOptions).
  bool for_servers = false;
  SharedPipelines* pipelines = nullptr;  // The input pipelines of this process.
  int replicas_on_host = 1;              // Replicas of all members on this host.
  DamageLog* damage_log = nullptr;       // Logs damaged examples. Lives for the whole run.
  // An estimate of the number of replicas in the whole cluster, including the replicas of lost
  // members. Equal in all members.
  int declared_replicas = 0;
  TaskMeter* meter = nullptr;  // Measures the steps. May be null.
};

// One replica, and the objects that its loop uses during one generation. The parts of the loop
// refer to one LoopReplica, which must outlive them. Used by the replica's thread.
struct LoopReplica {
  const LoopContext context;
  Replica* const replica;
  collective::Communicator* const communicator;
  const int local_index;  // Index of the replica in its process.
  const TrainData& data;
  LoopState& state;  // Belongs to this replica only.

  // Returns the index of the replica in the generation.
  int global_index() const { return context.first_replica + local_index; }
  // Returns true for the first replica of the process. That replica makes the calls that a process
  // makes only once, such as SetPhase.
  bool first_local() const { return local_index == 0; }
  // Returns true for the first replica of rank 0, the reporter. Only the reporter calls observers,
  // saves checkpoints and runs the hooks of callbacks.
  bool reporter() const { return first_local() && context.first_replica == 0; }
  // Sets the phase (common/base/phase.h) that the heartbeats of this process report. Has an effect
  // only if this replica is the first replica of the process.
  void Enter(Phase phase) const {
    if (first_local()) context.membership->SetPhase(phase, state.step + 1);
  }
  // Returns true if the program or the job has data for `split`.
  bool Has(Split split) const { return context.datasets.contains(split); }
  // Returns true if training has ended.
  bool IsFinished() const { return muster::IsFinished(context.job, state); }
};

}  // namespace muster
