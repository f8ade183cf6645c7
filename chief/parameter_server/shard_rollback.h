// ShardRollback restores shards that are lost. A shard is the part of the variables that one server
// (ps task) holds. A shard is lost if no server has a copy of it, or if no process with a copy
// returns in time. ShardRollback restores the shard from the last checkpoint. If there is no
// checkpoint, it uses the weights in the chief's replica of the model. These are the weights from
// which training began, or the weights of a later cut (a consistent copy of the servers' state).
// All updates of the shard after the restored state are lost. ShardRollback owns the state from
// which it restores. Used only by the thread of Director::Run.
#pragma once

#include <optional>
#include <utility>

#include "chief/parameter_server/checkpoint_cutter.h"
#include "chief/parameter_server/director/director_members.h"
#include "chief/parameter_server/run_setup.h"
#include "chief/parameter_server/shard_state.h"

namespace muster::chief {

class ShardRollback {
 public:
  // The state from which shards are restored.
  struct Kept {
    checkpoint::TrainingState state;
    // The files of the last checkpoint, or of the checkpoint from which training began. If there
    // are no files, shards are restored from the weights of the chief's replica.
    std::optional<StateFiles> files;
    // Without `files`: the error of loading the initial weights (DirectorStart::unloaded). If this
    // is not OK, RestoreShards fails with this error.
    absl::Status unloaded;
  };

  // `setup`, `state` and `members` must outlive this object.
  ShardRollback(const RunSetup& setup, ShardState* state, DirectorMembers* members, Kept kept)
      : setup_(setup), state_(*state), members_(*members), kept_(std::move(kept)) {}

  // Restores the lost shards on present servers. Has no effect until all servers have the view (the
  // assignment of shards to servers) in which no server serves these shards. That view ends all
  // pushes to the lost shards. Also returns OK if a server is lost or unreachable while the chief
  // fills it. The caller then calls RestoreShards again.
  absl::Status RestoreShards();
  // Called before a cut is read into the chief's replica. If shards are restored from the replica's
  // weights, copies these weights. The copy stays valid even if the cut is read only in part.
  void RetainWeights();
  // Called when a cut was read completely. From this call on, shards are restored from this cut,
  // with two exceptions. A cut with Cut::put_back has a callback's weights and is not used. A cut
  // that was not written to files is used only if there are no earlier files and no embedding
  // tables.
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
