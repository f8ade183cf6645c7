// What the director of a parameter-server job does next: pure decisions on what it knows. The
// director looks, decides, acts, and looks again, until there is nothing to do.
#pragma once

#include <cstdint>
#include <optional>

#include "chief/lease_table.h"

namespace muster {

// kPreparing -> kAwaitingServers -> kStarting -> kTraining -> kEnding -> kDone or kFailed
enum class DirectorPhase {
  kPreparing,
  kAwaitingServers,  // until each ps task knows its layout
  kStarting,         // members are served; callbacks have not begun
  kTraining,
  kEnding,  // the outcome is being recorded
  kDone,    // workers that ask are told that they are done
  kFailed,
};

// A state of the job as the chief sees it, between two of its own actions.
struct DirectorSituation {
  DirectorPhase phase = DirectorPhase::kStarting;
  bool stop = false;      // was asked for
  bool finished = false;  // no step is left, or a callback has stopped training
  // All shards are served, no lease is out, and every step is reported: the servers hold the state
  // after the last one.
  bool quiet = false;
  bool cutting = false;  // a cut is being read

  bool checkpoints = false;  // are written at all
  bool saved = false;        // a checkpoint has the state of now, or will have
  // What a cut of now is wanted for.
  bool checkpoint_wanted = false, histograms_wanted = false, weights_wanted = false;
  bool save_requested = false;                                 // by a callback
  enum class Best { kNone, kWaits, kDue } best = Best::kNone;  // the best state so far

  enum class Pass { kNone, kRunning, kComplete } pass = Pass::kNone;
  bool validation_due = false, test_due = false;

  bool callbacks = false;            // there are some
  bool callbacks_ended = false;      // and have heard of the end
  bool epoch_ended = false;          // which they have not heard of
  bool epoch_begins = false;         // likewise
  bool weights_known = false;        // the replica has the servers' weights of now
  bool begins_with_weights = false;  // callbacks begin with weights that the servers have
};

enum class DirectorAction {
  kWait,
  kBeginCallbacks,
  kEndEpoch,  // of callbacks, as the next two
  kEndTraining,
  kBeginEpoch,
  kWantWeights,  // asks for a cut
  kAskForBest,   // whether the best state is to be saved
  kAskForSave,   // whether the state that a callback wants saved is
  kCut,
  kCancelPass,
  kStartPass,
  kFinishPass,
  kStop,    // all is saved after a stop
  kFinish,  // all is done and saved
};

struct DirectorDecision {
  DirectorAction action = DirectorAction::kWait;
  bool checkpoint = false;    // a checkpoint of now is wanted
  bool waits_to_cut = false;  // kWait: until no lease is out
};

DirectorDecision Decide(const DirectorSituation& situation);

// What no new lease passes.
struct GateSituation {
  LeaseTable::Gate before;
  bool closed = false;
  bool reported = false;  // no lease is out, every step is reported, no pass is due
  bool steps_to_report = false;
  int64_t epoch = 0, step = 0;         // of now
  std::optional<int64_t> every_steps;  // a checkpoint
  std::optional<int64_t> open_epochs;  // as far as callbacks are concerned
};
LeaseTable::Gate DecideGate(const GateSituation& situation);

}  // namespace muster
