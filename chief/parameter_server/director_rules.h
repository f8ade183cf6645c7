// These pure functions decide what the Director of a parameter-server job does next. The Director
// collects a DirectorSituation, calls Decide, and carries out the action. It repeats this until
// there is nothing to do.
//
// A shard is the part of the variables that one ps task (server) holds. A lease is a batch that the
// chief assigns to a worker. A cut is a consistent copy of the servers' state between two steps. A
// pass is an evaluation of the validation or test data by the workers.
#pragma once

#include <cstdint>
#include <optional>

#include "chief/leases/lease_table.h"

namespace muster::chief {

// kPreparing -> kAwaitingServers -> kStarting -> kTraining -> kEnding -> kDone or kFailed
enum class DirectorPhase {
  kPreparing,
  kAwaitingServers,  // The Director waits until enough ps tasks are present.
  kStarting,         // The Director answers calls of workers. Callbacks have not begun.
  kTraining,
  kEnding,  // The Director stores the outcome on the servers.
  kDone,    // The job is done. The Director tells workers so.
  kFailed,
};

// The state of the job between two actions of the Director.
struct DirectorSituation {
  DirectorPhase phase = DirectorPhase::kStarting;
  bool stop = false;      // A stop was requested.
  bool finished = false;  // All steps are done, or a callback has stopped training.
  // A server serves each shard, no lease is open, and every completed step was reported to the
  // observers. The servers then hold the state after the last step.
  bool quiet = false;
  bool cutting = false;  // The chief is reading a cut.

  bool checkpoints = false;  // The job writes checkpoints.
  bool saved = false;        // The current state is in a checkpoint, or in one being written.
  // The purposes for which a cut of the current state is wanted: a checkpoint, histograms of the
  // parameters, or weights for callbacks.
  bool checkpoint_wanted = false, histograms_wanted = false, weights_wanted = false;
  bool save_requested = false;  // A callback has requested a save.
  // After validation, the Director asks the CheckpointSink whether to save the state as the best
  // one. kDue: the Director asks now. kWaits: the Director asks when an earlier save is written.
  enum class Best { kNone, kWaits, kDue } best = Best::kNone;

  enum class Pass { kNone, kRunning, kComplete } pass = Pass::kNone;
  bool validation_due = false, test_due = false;

  bool callbacks = false;        // The job has callbacks.
  bool callbacks_ended = false;  // The hooks for the end of training have run.
  bool epoch_ended = false;      // The hooks for the end of an epoch have to run.
  bool epoch_begins = false;     // The hooks for the begin of the next epoch have to run.
  bool weights_known = false;    // The chief's replica has the servers' current weights.
  // At the start, callbacks need the weights that the servers hold now.
  bool begins_with_weights = false;
};

enum class DirectorAction {
  kWait,
  kBeginCallbacks,
  kEndEpoch,     // Run the hooks for the end of an epoch.
  kEndTraining,  // Run the hooks for the end of training.
  kBeginEpoch,   // Run the hooks for the begin of an epoch.
  kWantWeights,  // Request a cut for callbacks.
  kRequestBest,  // Ask the CheckpointSink whether to save the state as the best one.
  kRequestSave,  // Ask the CheckpointSink about the save that a callback has requested.
  kCut,          // Begin a cut.
  kCancelPass,
  kStartPass,
  kFinishPass,
  kStop,    // End the job because of a stop. The state is saved.
  kFinish,  // End the job. All work is done, and the state is saved.
};

struct DirectorDecision {
  DirectorAction action = DirectorAction::kWait;
  bool checkpoint = false;    // A checkpoint of the current state is wanted.
  bool waits_to_cut = false;  // For kWait: the Director waits for open leases to begin a cut.
};

DirectorDecision Decide(const DirectorSituation& situation);

// The input of DecideGate.
struct GateSituation {
  LeaseTable::Gate before;  // The current gate.
  bool closed = false;      // No new lease may be given out.
  // No lease is open, every completed step was reported to the observers, and no pass is due.
  bool reported = false;
  bool steps_to_report = false;        // Some completed steps were not reported yet.
  int64_t epoch = 0, step = 0;         // The current epoch (from 0) and the last completed step.
  std::optional<int64_t> every_steps;  // Interval of checkpoints, in steps.
  std::optional<int64_t> open_epochs;  // The value of DirectorEpochs::OpenEpochs.
};
// Returns the new limit for leases.
LeaseTable::Gate DecideGate(const GateSituation& situation);

}  // namespace muster::chief
