// The objects that the loops of a process share during one generation, and those that the parts of
// one replica's loop share.
#pragma once

#include <map>
#include <vector>

#include "common/base/phase.h"
#include "common/collective/communicator.h"
#include "common/job/job.h"
#include "common/train/damaged_examples.h"
#include "common/train/embedding/local_exchange.h"
#include "common/train/loop_data.h"
#include "common/train/loop_state.h"
#include "common/train/membership.h"
#include "common/train/replica/replica.h"
#include "common/train/replica/replica_buffers.h"
#include "common/train/state/checkpointing.h"
#include "common/train/state/snapshot.h"

namespace muster {

class TaskMeter;

// The objects that the loops of all replicas of a process share during one generation.
struct LoopContext {
  const Job& job;
  const std::map<Split, data::DatasetPtr>& datasets;
  const std::vector<data::DatasetPtr>& named_datasets;  // Indexed by handle.
  Membership* membership;
  const std::vector<Observer*>& observers;
  CheckpointSink* checkpoints;  // Null if the job saves nothing.
  SnapshotTaker* snapshots;
  // The kPerReplica buffers of the last save or restore. Rank 0 sends them to replicas without such
  // buffers.
  StackedBuffers* kept;
  LocalExchange* exchange;
  int num_replicas;   // All replicas of the generation.
  int first_replica;  // Index of this process's first replica in the generation.
  int owner_replica;  // The replica whose state is broadcast.
  int world_size;
  int local_replicas = 1;    // Replicas of this process.
  bool for_servers = false;  // As in StepRunnerOptions.
  SharedPipelines* pipelines = nullptr;
  int replicas_on_host = 1;         // Replicas of all members on this host.
  DamageLog* damage_log = nullptr;  // Lasts for the whole run.
  int declared_replicas = 0;        // Replicas of the whole cluster. Equal in all members.
  TaskMeter* meter = nullptr;       // Null: nothing is measured.
};

// One replica of a generation, and the objects that its loop uses. The parts of the loop refer to
// one LoopReplica, which outlives them. Used by the replica's thread.
struct LoopReplica {
  const LoopContext context;
  Replica* const replica;
  collective::Communicator* const communicator;
  const int local_index;  // Index of the replica in its process.
  const TrainData& data;
  LoopState& state;  // Belongs to this replica only.

  int global_index() const { return context.first_replica + local_index; }
  // Returns true for the process's first replica, which acts for the process.
  bool first_local() const { return local_index == 0; }
  // Returns true for rank 0's first replica. Only this replica reports to observers, saves
  // checkpoints and runs the hooks of callbacks.
  bool reporter() const { return first_local() && context.first_replica == 0; }
  // Sets the phase that heartbeats of this process report.
  void Enter(Phase phase) const {
    if (first_local()) context.membership->SetPhase(phase, state.steps + 1);
  }
  bool Has(Split split) const { return context.datasets.contains(split); }
  // Returns true if training has no step left.
  bool IsFinished() const { return muster::IsFinished(context.job, state); }
};

}  // namespace muster
