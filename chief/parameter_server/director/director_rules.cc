#include "chief/parameter_server/director/director_rules.h"

#include <algorithm>

namespace muster::chief {
namespace {

using Action = DirectorAction;
using Situation = DirectorSituation;

// Returns whether a checkpoint needs the current state. At the end and after a stop it always does.
bool CheckpointWanted(const Situation& s) {
  const bool ends = s.stop || (s.finished && (!s.callbacks || s.callbacks_ended));
  if (s.phase == DirectorPhase::kTraining && ends) return s.checkpoints && !s.saved;
  return s.checkpoint_wanted;
}

// Requests a cut that brings the current weights to the replica, unless one is in progress.
Action GetWeights(const Situation& s) {
  return s.cutting || s.weights_wanted ? Action::kWait : Action::kWantWeights;
}

Action BeginCallbacks(const Situation& s) {
  if (!s.callbacks) return Action::kBeginCallbacks;
  if (s.cutting) return Action::kWait;
  if (s.begins_with_weights && !s.weights_known) return GetWeights(s);
  return Action::kBeginCallbacks;
}

// Returns the next action of callbacks. They may save the current weights, so the replica must have
// these first.
Action NextOfCallbacks(const Situation& s) {
  if (!s.callbacks || s.stop || !s.quiet || s.phase != DirectorPhase::kTraining)
    return Action::kWait;
  const bool training_ended = s.finished && !s.callbacks_ended;
  if ((s.epoch_ended || training_ended) && (s.cutting || !s.weights_known)) return GetWeights(s);
  // Validation comes first, because its metrics belong to the epoch. So does a checkpoint, because
  // callbacks may change the state.
  if (s.epoch_ended)
    return s.validation_due || CheckpointWanted(s) || s.weights_wanted ? Action::kWait
                                                                       : Action::kEndEpoch;
  if (training_ended) return Action::kEndTraining;
  return s.finished || s.cutting || !s.epoch_begins ? Action::kWait : Action::kBeginEpoch;
}

Action NextOfPasses(const Situation& s) {
  if (!s.validation_due && !s.test_due) return Action::kWait;
  // The checkpoint of this step comes first, because validation may mark it as the best.
  if (s.pass == Situation::Pass::kComplete && !s.cutting) return Action::kFinishPass;
  if (s.pass != Situation::Pass::kNone) return Action::kWait;
  if (!s.quiet || CheckpointWanted(s) || s.weights_wanted) return Action::kWait;
  // A test pass comes after the hooks of callbacks.
  const bool callbacks_first = s.callbacks && (s.epoch_ended || (s.finished && !s.callbacks_ended));
  if (!s.validation_due && callbacks_first) return Action::kWait;
  return Action::kStartPass;
}

bool AllDone(const Situation& s) {
  return s.phase == DirectorPhase::kTraining && s.finished && s.quiet && !s.cutting &&
         s.best == Situation::Best::kNone && !s.validation_due && !s.test_due &&
         !s.histograms_wanted && !s.weights_wanted && !CheckpointWanted(s) &&
         (!s.callbacks || (!s.epoch_ended && s.callbacks_ended));
}

Action NextOf(const Situation& s) {
  if (s.stop && s.pass != Situation::Pass::kNone) return Action::kCancelPass;
  if (s.phase == DirectorPhase::kStarting)
    if (const Action action = BeginCallbacks(s); action != Action::kWait) return action;
  if (s.best == Situation::Best::kDue) return Action::kRequestBest;
  if (const Action action = NextOfCallbacks(s); action != Action::kWait) return action;
  if (s.save_requested) return Action::kRequestSave;
  if ((CheckpointWanted(s) || s.histograms_wanted || s.weights_wanted) && !s.cutting)
    return s.quiet ? Action::kCut : Action::kWait;
  if (s.stop) {
    const bool saved = s.quiet && !s.cutting && !CheckpointWanted(s);
    return saved && s.phase == DirectorPhase::kTraining ? Action::kStop : Action::kWait;
  }
  if (const Action action = NextOfPasses(s); action != Action::kWait) return action;
  return AllDone(s) ? Action::kFinish : Action::kWait;
}

}  // namespace

DirectorDecision Decide(const DirectorSituation& situation) {
  DirectorDecision decision;
  decision.action = NextOf(situation);
  decision.checkpoint = CheckpointWanted(situation);
  decision.waits_to_cut =
      decision.action == Action::kWait && !situation.quiet && !situation.cutting &&
      (decision.checkpoint || situation.histograms_wanted || situation.weights_wanted);
  return decision;
}

LeaseTable::Gate DecideGate(const GateSituation& s) {
  LeaseTable::Gate gate;
  gate.closed = s.closed;
  // An epoch's end is handled before the next epoch's first lease.
  gate.last_epoch = s.reported ? s.epoch : s.before.last_epoch.value_or(s.epoch);
  if (s.open_epochs) gate.last_epoch = std::min(*gate.last_epoch, *s.open_epochs - 1);
  if (s.every_steps) {
    gate.steps = (s.step / *s.every_steps + 1) * *s.every_steps;
    // The limit stays until the step at the limit is reported and its cut is taken.
    if (s.steps_to_report && s.before.steps) gate.steps = s.before.steps;
  }
  return gate;
}

}  // namespace muster::chief
