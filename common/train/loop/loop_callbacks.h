// The callbacks of a replica's loop. Hooks run only in the reporter (LoopReplica), and this object
// sends their requests to all replicas. The values that hooks see, keep and request are part of the
// training state. If a process is lost within a hook, the hook is called again with the previous
// state. A hook whose requests have reached the replicas is not called again.
//
// Used by the replica's thread. All replicas of the generation make the same calls in the same
// order, because the methods that call hooks communicate, except for BeginPass. These methods throw
// StatusError. In a run without callbacks, they do nothing.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/checkpoint/callback_record.h"
#include "common/train/callbacks/callbacks.h"
#include "common/train/evaluation.h"
#include "common/train/loop/loop_context.h"

namespace muster {

class LoopCallbacks {
 public:
  // `loop` must outlive this object.
  explicit LoopCallbacks(const LoopReplica& loop);
  LoopCallbacks(const LoopCallbacks&) = delete;
  LoopCallbacks& operator=(const LoopCallbacks&) = delete;

  // ---- The state of the callbacks. Equal on all replicas.

  // Returns true if the run has callbacks.
  bool any() const { return !replica_->callbacks().callbacks.empty(); }
  // Returns true if a callback has requested a stop. Training then ends after the current step.
  bool stopping() const {
    return any() && state_.extras.callbacks && !state_.extras.callbacks->stop.empty();
  }
  // Returns why a callback has requested a stop.
  const std::string& why_stopping() const { return record().stop; }
  // These return true if the hooks have yet to run: those for the end of the last step, for the end
  // of its epoch, and for the end of training.
  bool step_end_pending() const { return any() && record().steps_ended < state_.steps; }
  bool epoch_end_pending() const;
  bool train_end_pending() const { return any() && loop_.IsFinished() && !record().ended; }
  // Returns true if the weights are those of an earlier step, which a callback has restored.
  bool has_restored() const { return any() && record().weights_of > 0; }
  bool save_requested() const { return save_requested_; }
  // Returns true if a callback has requested a save since the last call.
  bool TakeSaveRequest();

  // ---- Calls of the loop

  // Prepares the record, rates and weights that came with the owner's state. Called before all
  // other methods. Afterwards LoopState::extras.callbacks is set if and only if any().
  void TakeOver();
  // Calls the hooks for the beginning of training.
  void Begin();
  // Calls the hooks for the beginning of the next step, and of its epoch.
  void BeginStep();
  void EndStep();
  void EndEpoch();
  void EndTraining();
  void BeginPass(Split split);
  void EndPass(Split split, const std::map<std::string, double>& metrics);
  // Updates the moving average of the weights after a step, without communication.
  void AverageWeights();
  // Repeats a pass with the moving average of the weights, if the run has one. Adds the resulting
  // metrics as "ema_<name>". Returns false if the pass was stopped.
  bool PassOfAverage(PassOptions options, std::map<std::string, double>* metrics);

 private:
  checkpoint::CallbackRecord& record() { return *state_.extras.callbacks; }
  const checkpoint::CallbackRecord& record() const { return *state_.extras.callbacks; }
  // Removes what belongs to callbacks and optimizers that the job no longer has.
  void DropUnknown();
  void ApplyRates();
  CallbackHostOptions HostOptions();
  absl::Status SaveModel(const std::string& path, bool with_optimizer);
  void Fire(Hook hook, Split split = Split::kTrain, std::map<std::string, double> metrics = {});
  // Sends the requests of the hooks from rank 0 to all replicas, which apply them.
  void ExchangeDecisions();
  // Applies requests, without communication.
  void Apply(CallbackDecision decision);
  // Returns the training metrics of the epoch, its validation metrics as "val_<name>", and the
  // learning rate.
  std::map<std::string, double> EpochMetrics() const;

  const LoopReplica& loop_;
  Replica* const replica_;
  LoopState& state_;
  std::unique_ptr<CallbackHost> host_;  // Null in replicas that do not run hooks.
  bool save_requested_ = false;
};

}  // namespace muster
