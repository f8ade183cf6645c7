// These pure functions decide what the Director of a parameter-server job does next. The Director
// collects a situation, decides, acts, and repeats this until there is nothing to do.
#pragma once

#include <cstdint>
#include <optional>

#include "chief/leases/lease_table.h"

namespace muster::chief {

// kPreparing -> kAwaitingServers -> kStarting -> kTraining -> kEnding -> kDone or kFailed
enum class DirectorPhase {
  kPreparing,
  kAwaitingServers,  // Until each ps task knows its layout.
  kStarting,         // Calls of workers are answered. Callbacks have not begun.
  kTraining,
  kEnding,  // The Director records the outcome.
  kDone,    // The job is done. Answers to workers say so.
  kFailed,
};

// The state of the job as the chief sees it between two of its actions.
struct DirectorSituation {
  DirectorPhase phase = DirectorPhase::kStarting;
  bool stop = false;      // A stop was requested.
  bool finished = false;  // No step is left, or a callback has stopped training.
  // All shards are served, no lease is open and every step is reported. The servers hold the state
  // after the last step.
  bool quiet = false;
  bool cutting = false;  // A cut is being read.

  bool checkpoints = false;  // The job writes checkpoints.
  bool saved = false;        // A checkpoint holds the current state, or will hold it.
  // The purposes for which a cut of the current state is wanted.
  bool checkpoint_wanted = false, histograms_wanted = false, weights_wanted = false;
  bool save_requested = false;  // A callback requested a save.
  // The save of a new best state. kWaits: an earlier save is still being written.
  enum class Best { kNone, kWaits, kDue } best = Best::kNone;

  enum class Pass { kNone, kRunning, kComplete } pass = Pass::kNone;
  bool validation_due = false, test_due = false;

  bool callbacks = false;            // The job has callbacks.
  bool callbacks_ended = false;      // Callbacks have run their hooks for the end of training.
  bool epoch_ended = false;          // Callbacks must run their hooks for the end of an epoch.
  bool epoch_begins = false;         // Callbacks must run their hooks for the next epoch.
  bool weights_known = false;        // The replica has the servers' current weights.
  bool begins_with_weights = false;  // Callbacks begin with weights that the servers hold.
};

enum class DirectorAction {
  kWait,
  kBeginCallbacks,
  kEndEpoch,  // kEndEpoch, kEndTraining and kBeginEpoch run callbacks.
  kEndTraining,
  kBeginEpoch,
  kWantWeights,  // Requests a cut.
  kRequestBest,  // Asks the CheckpointSink whether to save the best state.
  kRequestSave,  // Asks the CheckpointSink whether to save, because a callback wants it.
  kCut,
  kCancelPass,
  kStartPass,
  kFinishPass,
  kStop,    // The job ends because of a stop. Everything is saved.
  kFinish,  // The job ends. Everything is done and saved.
};

struct DirectorDecision {
  DirectorAction action = DirectorAction::kWait;
  bool checkpoint = false;    // A checkpoint of the current state is wanted.
  bool waits_to_cut = false;  // kWait: a cut begins once no lease is open.
};

DirectorDecision Decide(const DirectorSituation& situation);

// The input of DecideGate.
struct GateSituation {
  LeaseTable::Gate before;
  bool closed = false;
  bool reported = false;  // No lease is open, every step is reported, no pass is due.
  bool steps_to_report = false;
  int64_t epoch = 0, step = 0;         // The current epoch and step.
  std::optional<int64_t> every_steps;  // Interval of checkpoints, in steps.
  std::optional<int64_t> open_epochs;  // Number of epochs that callbacks have opened.
};
LeaseTable::Gate DecideGate(const GateSituation& situation);

}  // namespace muster::chief
