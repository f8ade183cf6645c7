// Decides what the director of a parameter-server job does next. Pure functions. The director takes
// a situation, decides and acts, and repeats this until there is nothing to do.
#pragma once

#include <cstdint>
#include <optional>

#include "chief/lease_table.h"

namespace muster {

// kPreparing -> kAwaitingServers -> kStarting -> kTraining -> kEnding -> kDone or kFailed
// kPreparing -> kAwaitingServers -> kStarting -> kTraining -> kEnding -> kDone or kFailed
enum class DirectorPhase {
  kPreparing,
  kAwaitingServers,  // until each ps task knows its layout
  kStarting,         // calls of members are answered; callbacks have not begun
  kTraining,
  kEnding,  // the outcome is being recorded
  kDone,    // workers that ask for work are answered that the job is done
  kFailed,
};

// The state of the job as the chief sees it between two of its actions.
struct DirectorSituation {
  DirectorPhase phase = DirectorPhase::kStarting;
  bool stop = false;      // a stop was requested
  bool finished = false;  // no step is left, or a callback has stopped training
  // All shards are served, no lease is out and every step is reported. The servers hold the state
  // after the last step.
  bool quiet = false;
  bool cutting = false;  // a cut is being read

  bool checkpoints = false;  // the job writes checkpoints
  bool saved = false;        // a checkpoint holds the current state, or will hold it
  // The purposes for which a cut of the current state is wanted.
  bool checkpoint_wanted = false, histograms_wanted = false, weights_wanted = false;
  bool save_requested = false;  // by a callback
  // Whether the best state so far is to be saved.
  enum class Best { kNone, kWaits, kDue } best = Best::kNone;

  enum class Pass { kNone, kRunning, kComplete } pass = Pass::kNone;
  bool validation_due = false, test_due = false;

  bool callbacks = false;            // the job has callbacks
  bool callbacks_ended = false;      // callbacks have run their hooks for the end of training
  bool epoch_ended = false;          // callbacks have not run their hooks for it
  bool epoch_begins = false;         // callbacks have not run their hooks for it
  bool weights_known = false;        // the replica has the servers' current weights
  bool begins_with_weights = false;  // callbacks begin with weights that the servers hold
};

enum class DirectorAction {
  kWait,
  kBeginCallbacks,
  kEndEpoch,  // runs hooks of callbacks, as the next two do
  kEndTraining,
  kBeginEpoch,
  kWantWeights,  // requests a cut
  kAskForBest,   // asks whether to save the best state
  kAskForSave,   // asks whether to save the state that a callback wants saved
  kCut,
  kCancelPass,
  kStartPass,
  kFinishPass,
  kStop,    // everything is saved after a stop
  kFinish,  // everything is done and saved
};

struct DirectorDecision {
  DirectorAction action = DirectorAction::kWait;
  bool checkpoint = false;    // a checkpoint of the current state is wanted
  bool waits_to_cut = false;  // kWait: waits until no lease is out, to cut then
};

DirectorDecision Decide(const DirectorSituation& situation);

// Input for the limit that no new lease passes.
struct GateSituation {
  LeaseTable::Gate before;
  bool closed = false;
  bool reported = false;  // no lease is out, every step is reported, no pass is due
  bool steps_to_report = false;
  int64_t epoch = 0, step = 0;         // the current ones
  std::optional<int64_t> every_steps;  // interval of checkpoints
  std::optional<int64_t> open_epochs;  // number of epochs that callbacks have opened
};
LeaseTable::Gate DecideGate(const GateSituation& situation);

}  // namespace muster
