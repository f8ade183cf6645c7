// DirectorSaves manages the cuts of a parameter-server job. A cut is a consistent copy of the
// servers' state between two steps (chief/parameter_server/checkpoint_cutter.h). DirectorSaves
// records the purposes for which a cut is wanted. It begins a cut, and retries the cut if a server
// is lost. It passes the result to the CheckpointSink, to callbacks and to observers. It knows
// whether the job can end without another checkpoint (IsSaved), and the step of the weights in the
// chief's replica of the model. Used only by the thread of Director::Run.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "chief/parameter_server/checkpoint_cutter.h"
#include "chief/parameter_server/director/director_members.h"
#include "chief/parameter_server/director/director_rules.h"
#include "chief/parameter_server/director/waiting_log.h"
#include "chief/parameter_server/run_setup.h"
#include "chief/parameter_server/shard_rollback.h"
#include "chief/parameter_server/training_callbacks.h"
#include "chief/parameter_server/training_reporter.h"

namespace muster::chief {

class DirectorSaves {
 public:
  // All objects must outlive the DirectorSaves.
  struct Parts {
    const Job* job = nullptr;
    const RunSetup* setup = nullptr;
    ShardState* state = nullptr;
    CheckpointSink* sink = nullptr;      // Null: the job writes no checkpoints.
    DirectorMembers* members = nullptr;  // Its Prepare was called.
    ShardRollback* rollback = nullptr;
    TrainingReporter* reporter = nullptr;
    TrainingCallbacks* callbacks = nullptr;
    WaitingLog* waiting = nullptr;
  };
  explicit DirectorSaves(const Parts& parts);

  // ---- Requests
  //
  // Asks the CheckpointSink whether to save the state after a completed step.
  void OfferStep(const CompletedStep& step);
  void WantHistograms() { wanted_.histograms = true; }
  void WantWeights() { wanted_.weights = true; }  // Requests the weights for callbacks.
  // Called after a validation pass. Requests a save of the state after `step`, independently of the
  // interval of checkpoints. The CheckpointSink decides in TakeBest whether this state is the best
  // one and is saved.
  void RequestBest(int64_t step, int64_t epoch);
  // Asks the CheckpointSink about the request of RequestBest. REQUIRES: DirectorSituation::best is
  // kDue.
  void TakeBest();
  // Cancels the request of RequestBest.
  void DropBest() { best_requested_.reset(); }
  // Asks the CheckpointSink about the save that a callback has requested.
  void TakeRequest();
  // Called if a wanted cut cannot begin yet. `checkpoint` is true if the cut is for a checkpoint.
  // The time limit for the cut starts at the first call.
  void Postpone(bool checkpoint);

  // ---- Cuts
  //
  // Begins a cut. `checkpoint` is true if the cut is for a checkpoint. `due` tells whether the
  // validation pass and the test pass are due. REQUIRES: a cut is wanted, no lease (batch of a
  // worker) is open, each shard (part of the variables) is served.
  absl::Status Begin(bool checkpoint, std::pair<bool, bool> due);
  // Passes on the result of a cut that was read completely. Retries or gives up a cut that could
  // not be read. Returns an error if training cannot continue without the cut. Has no effect if no
  // cut was begun, or while a cut is being read.
  absl::Status Take();
  // Blocks until the cut in progress is read, and discards it. Has no effect if there is none.
  void Drop();

  // ---- State
  //
  // Sets the fields of `now` that describe saves. `step` is the newest completed step.
  void Describe(int64_t step, DirectorSituation* now) const;
  // Returns true if no lease may be given out. The reason is that a wanted cut has not begun, or
  // that TakeBest or DropBest must still handle the request of RequestBest.
  bool HoldsLeases() const;
  // Returns whether the job can end with the state after `step` without another checkpoint. The job
  // can end if SetSaved was called for this state, or if a cut of this state with Cut::must was
  // begun. Other saves do not count. If the hooks for the end of training have run, a save from
  // before these hooks does not count either.
  bool IsSaved(int64_t step) const;
  // Notes that the checkpoint from which training resumes has the state after `step`. `ended` is
  // true if the hooks for the end of training ran before this checkpoint was made, or if the
  // checkpoint has no state of callbacks.
  void SetSaved(int64_t step, bool ended) { saved_ = {step, ended}; }
  // Returns whether the chief's replica has the weights after `step`. Returns false while a cut is
  // read, because the replica then has only a part of the cut's weights.
  bool HasWeights(int64_t step) const { return cutter_.idle() && weights_step_ == step; }
  // Returns the step of the weights in the chief's replica, -1 if unknown.
  int64_t weights_step() const { return weights_step_; }
  void SetWeightsStep(int64_t step) { weights_step_ = step; }

 private:
  // The purposes for which a cut of the current state is wanted.
  struct Wanted {
    bool checkpoint = false, histograms = false, weights = false;
    // When the Director first tried to begin the wanted cut. Reset when the cut was read or given
    // up.
    std::optional<MonotonicTime> since;
  };
  // The arguments of the last SetSaved, or the values for a later cut with Cut::must.
  struct Saved {
    int64_t step = -1;
    bool ended = false;
  };

  Cut MakeCut(bool checkpoint, std::pair<bool, bool> due);
  absl::Status GiveUp(const absl::Status& why);
  absl::Status PassOn(Cut cut);
  Duration Deadline() const;

  const Parts parts_;
  Wanted wanted_;
  // The save that RequestBest has requested, and the time of the request.
  std::optional<std::pair<SaveMoment, MonotonicTime>> best_requested_;
  Saved saved_;
  int64_t weights_step_ = -1;
  CheckpointCutter cutter_;
};

}  // namespace muster::chief
