// ShardRollback restores the shards that no ps task has. Such a shard goes back to the last
// checkpoint, or to the state from which training began, and later updates of it are lost.
// ShardRollback owns that state. Used by the director's thread.
#pragma once

#include <optional>
#include <utility>

#include "chief/parameter_server/checkpoint_cutter.h"
#include "chief/parameter_server/director_members.h"
#include "chief/parameter_server/run_setup.h"
#include "chief/parameter_server/shard_state.h"

namespace muster::chief {

class ShardRollback {
 public:
  struct Kept {
    checkpoint::TrainingState state;
    // Files of the last checkpoint, or of the checkpoint from which training began. Without files,
    // a shard gets the replica's weights.
    std::optional<StateFiles> files;
    absl::Status unloaded;  // DirectorStart::unloaded, if there are no `files`.
  };

  // `setup`, `state` and `members` must outlive this object.
  ShardRollback(const RunSetup& setup, ShardState* state, DirectorMembers* members, Kept kept)
      : setup_(setup), state_(*state), members_(*members), kept_(std::move(kept)) {}

  // Fills the shards that no task has. Has no effect before all tasks have the view without these
  // shards. Returns OK if a task was lost meanwhile; the caller tries again later.
  absl::Status RestoreShards();
  // Keeps the replica's weights if shards roll back to them. Called before a cut changes the
  // replica. They then stay those of one moment, even if the cut is not read completely.
  void RetainWeights();
  // Keeps the state of a cut that was read completely, if shards can roll back to it.
  void Commit(Cut cut);

  const checkpoint::TrainingState& state() const { return kept_.state; }
  const absl::Status& unloaded() const { return kept_.unloaded; }

 private:
  absl::Status FillShard(int shard, ShardClient::Filling* filling) const;
  absl::Status FillAll(const DirectorState::Targets& targets);

  const RunSetup& setup_;
  ShardState& state_;
  DirectorMembers& members_;
  Kept kept_;
};

}  // namespace muster::chief
