// DirectorSaves decides for which purposes a cut of the servers' state is wanted, begins the cut,
// retries it, and passes its result on: to the sink of checkpoints, to callbacks, to reports. It
// knows after which step the state was last saved, and after which step the replica's weights are.
// Used by the director's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "chief/parameter_server/checkpoint_cutter.h"
#include "chief/parameter_server/director_members.h"
#include "chief/parameter_server/director_rules.h"
#include "chief/parameter_server/run_setup.h"
#include "chief/parameter_server/shard_rollback.h"
#include "chief/parameter_server/training_callbacks.h"
#include "chief/parameter_server/training_reporter.h"
#include "chief/parameter_server/waiting_log.h"

namespace muster::chief {

class DirectorSaves {
 public:
  // All must outlive this object.
  struct Parts {
    const Job* job = nullptr;
    const RunSetup* setup = nullptr;
    ShardState* state = nullptr;
    CheckpointSink* sink = nullptr;      // Null: nothing is saved.
    DirectorMembers* members = nullptr;  // Prepared.
    ShardRollback* rollback = nullptr;
    TrainingReporter* reporter = nullptr;
    TrainingCallbacks* callbacks = nullptr;
    WaitingLog* waiting = nullptr;
  };
  explicit DirectorSaves(const Parts& parts);

  // ---- Requests
  //
  // Asks the sink whether to save the state after a completed step.
  void OfferStep(const CompletedStep& step);
  void WantHistograms() { wanted_.histograms = true; }
  void WantWeights() { wanted_.weights = true; }  // For callbacks.
  // Requests a save of the best state so far, whatever the interval of checkpoints is.
  void RequestBest(int64_t step, int64_t epoch);
  // Asks the sink about the request of RequestBest. REQUIRES: DirectorSituation::best is kDue.
  void TakeBest();
  void DropBest() { best_requested_.reset(); }
  // Asks the sink about the save that a callback has requested.
  void TakeRequest();
  // A cut is wanted that cannot begin yet. It is for a checkpoint if `checkpoint` is true.
  void Postpone(bool checkpoint);

  // ---- Cuts
  //
  // Begins a cut. `due` says whether the validation pass and the test pass are due. REQUIRES: a cut
  // is wanted, no lease is open, all shards are served.
  absl::Status Begin(bool checkpoint, std::pair<bool, bool> due);
  // Passes the cut on if it was read, otherwise has no effect. Returns an error if training cannot
  // continue without the cut.
  absl::Status Take();
  // Waits for the cut in progress, if there is one, and drops it.
  void Drop();

  // ---- State
  //
  // Sets the fields of `now` about saves. `step` is the last step.
  void Describe(int64_t step, DirectorSituation* now) const;
  // Returns whether leases must wait for a cut, or for the decision about one.
  bool HoldsLeases() const;
  // Returns whether the state after `step` is saved, or will be.
  bool IsSaved(int64_t step) const;
  // `ended` is true if the saved state includes the end of training.
  void SetSaved(int64_t step, bool ended) { saved_ = {step, ended}; }
  // Returns whether the replica has the weights after `step`. While a cut is read, it has not.
  bool HasWeights(int64_t step) const { return cutter_.idle() && weights_step_ == step; }
  // The step of the replica's weights, -1 if unknown.
  int64_t weights_step() const { return weights_step_; }
  void SetWeightsStep(int64_t step) { weights_step_ = step; }

 private:
  // The purposes for which a cut of the current state is wanted.
  struct Wanted {
    bool checkpoint = false, histograms = false, weights = false;
    // When the first try began. Reset once a cut was read completely or given up.
    std::optional<MonotonicTime> since;
  };
  // The step of the last save, or of the start.
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
  // The save that RequestBest requested, and the time of the request.
  std::optional<std::pair<SaveMoment, MonotonicTime>> best_requested_;
  Saved saved_;
  int64_t weights_step_ = -1;
  CheckpointCutter cutter_;
};

}  // namespace muster::chief
