// These pure functions decide the next action of the Director of a parameter-server job. The
// Director collects a DirectorSituation, calls Decide, and carries out the action. It repeats this
// until there is nothing to do.
//
// A shard is the part of the variables that one ps task (server) holds. A lease is a batch that the
// chief assigns to a worker. A cut is a consistent copy of the servers' state between two steps. A
// pass is an evaluation of the validation or test data by the workers.
#pragma once

#include <cstdint>
#include <optional>

#include "chief/leases/lease_table.h"

namespace muster::chief {

// The phases up to kDone follow in this order. A stop before kStarting may lead to kDone at once.
enum class DirectorPhase {
  kPreparing,
  kAwaitingServers,  // The Director waits until enough ps tasks are present.
  kStarting,         // The Director answers calls of workers. Callbacks have not begun.
  kTraining,
  kEnding,  // The Director stores the outcome on the servers.
  kDone,    // The job is done. The Director tells workers so.
  kFailed,  // Follows any phase before kEnding, after an error.
};

// The state of the job between two actions of the Director.
struct DirectorSituation {
  DirectorPhase phase = DirectorPhase::kStarting;
  bool stop = false;      // True if a stop was requested.
  bool finished = false;  // True if all steps are done, or a callback has stopped training.
  // True if each shard is served, no lease is open, and every completed step was reported to the
  // observers. The servers then hold the state after the newest completed step.
  bool quiet = false;
  bool cutting = false;  // True if the chief is reading a cut.

  bool checkpoints = false;  // True if the job writes checkpoints.
  // True if the job can end with the current state without another checkpoint (see
  // DirectorSaves::IsSaved).
  bool saved = false;
  // The purposes for which a cut of the current state is wanted: a checkpoint, histograms of the
  // parameters, or weights for callbacks.
  bool checkpoint_wanted = false, histograms_wanted = false, weights_wanted = false;
  bool save_requested = false;  // True if a callback has requested a save.
  // After validation, the Director asks the CheckpointSink whether to save the state as the best
  // one. kDue: the Director asks now. kWaits: the Director asks when no other checkpoint is being
  // written, or when timeouts.phase.save has passed.
  enum class Best { kNone, kWaits, kDue } best = Best::kNone;

  enum class Pass { kNone, kRunning, kComplete } pass = Pass::kNone;
  bool validation_due = false, test_due = false;

  bool callbacks = false;        // True if the job has callbacks.
  bool callbacks_ended = false;  // True if the hooks for the end of training have run.
  bool epoch_ended = false;      // True if the hooks for the end of an epoch have to run.
  bool epoch_begins = false;     // True if the hooks for the start of the next epoch have to run.
  // True if the chief's replica of the model has the servers' current weights.
  bool weights_known = false;
  // True if a callback keeps weights, and last copied them after the newest completed step. The
  // chief gets this copy again from the servers before the hooks for the start of training.
  bool begins_with_weights = false;
};

enum class DirectorAction {
  kWait,
  kBeginCallbacks,
  kEndEpoch,     // Run the hooks for the end of an epoch.
  kEndTraining,  // Run the hooks for the end of training.
  kBeginEpoch,   // Run the hooks for the start of an epoch.
  kWantWeights,  // Request a cut for callbacks.
  kRequestBest,  // Ask the CheckpointSink whether to save the state as the best one.
  kRequestSave,  // Ask the CheckpointSink about the save that a callback has requested.
  kCut,          // Begin a cut.
  kCancelPass,
  kStartPass,
  kFinishPass,
  kStop,    // End the job because of a stop. The state is saved, if the job writes checkpoints.
  kFinish,  // End the job. All work is done. The state is saved, if the job writes checkpoints.
};

struct DirectorDecision {
  DirectorAction action = DirectorAction::kWait;
  bool checkpoint = false;  // True if a checkpoint of the current state is wanted.
  // For kWait: true if a cut is wanted but cannot begin yet, because the situation is not quiet.
  bool waits_to_cut = false;
};

DirectorDecision Decide(const DirectorSituation& situation);

// The input of DecideGate.
struct GateSituation {
  LeaseTable::Gate before;  // The present limit for new leases.
  bool closed = false;      // True if no new lease may be given out.
  // True if no lease is open, every completed step was reported to the observers, and no pass is
  // due.
  bool reported = false;
  bool steps_to_report = false;        // True if some completed steps were not reported yet.
  int64_t epoch = 0, step = 0;         // The current epoch (from 0) and the newest completed step.
  std::optional<int64_t> every_steps;  // Interval of checkpoints, in steps.
  std::optional<int64_t> open_epochs;  // The value of DirectorEpochs::OpenEpochs.
};
// Returns the new limit for leases.
LeaseTable::Gate DecideGate(const GateSituation& situation);

}  // namespace muster::chief
