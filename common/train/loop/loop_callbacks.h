// Calls the callbacks of a run from a replica's training loop. A replica is one device's copy of
// the model, with its own thread. A hook is a method of a callback, such as epoch_end. A hook may
// make requests: to stop training, to set a learning rate, to save, or to keep or restore weights.
//
// Hooks run only in the reporter, the first replica of rank 0. This object sends the requests of
// the hooks to all replicas, which apply them at the same step. Requests and the states of
// callbacks are part of the training state. A generation is a period of training with fixed
// members. If a process is lost while a hook runs, the hook is called again in the next generation.
// The callbacks then have the state that they had before the interrupted call. A hook is not called
// again once its requests have reached the replicas.
//
// All replicas of the generation make the same calls in the same order, each in its own thread. The
// methods that call hooks do nothing in a run without callbacks. In a run with callbacks, they
// communicate with the other replicas, except:
// - BeginPass does not communicate.
// - If no callback may make requests in step_begin and step_end (CallbackList::decides_in_steps is
//   false), EndStep does not communicate, and BeginStep communicates only before the first step of
//   an epoch.
//
// All methods throw StatusError.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/checkpoint/state/callback_record.h"
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
  // Returns true if a callback has requested the end of training. Training then ends after the
  // current step.
  bool stopping() const {
    return any() && state_.extras.callbacks && !state_.extras.callbacks->stop.empty();
  }
  // Returns the reason that a callback gave for ending training. Empty if no callback has requested
  // the end. REQUIRES: any().
  const std::string& why_stopping() const { return record().stop; }
  // Return true if hooks are due and have not run yet. step_end_pending covers the hooks of
  // EndStep for the newest completed step. epoch_end_pending covers the hooks of EndEpoch if this
  // step ends an epoch or training. train_end_pending covers the hooks of EndTraining if training
  // has ended.
  bool step_end_pending() const { return any() && record().steps_ended < state_.step; }
  bool epoch_end_pending() const;
  bool train_end_pending() const { return any() && loop_.IsFinished() && !record().ended; }
  // Returns true if a callback has restored kept weights, and no step has begun since then.
  bool has_restored() const { return any() && record().weights_of > 0; }
  // Returns true if a callback has requested a save since the last call of TakeSaveRequest.
  bool save_requested() const { return save_requested_; }
  // Returns the value of save_requested(), and then sets it to false.
  bool TakeSaveRequest();

  // ---- Calls of the loop

  // Applies the callbacks' part of the state that this replica has received: callback states,
  // learning rates that callbacks have set, and kept weights (callbacks/kept_weights.h). Drops
  // outdated learning rates (DropReplacedRates). Drops the entries of callbacks and optimizers that
  // the job no longer has. Called before all other methods except any() and stopping(). After the
  // call, LoopState::extras.callbacks has a value if and only if any() is true.
  void TakeOver();
  // Calls the hooks for the beginning of training, if the hooks for the end have not run yet.
  void Begin();
  // Calls the hooks for the beginning of the next step. Before the first step of an epoch, first
  // calls the hooks for the beginning of the epoch.
  void BeginStep();
  // EndStep calls the hooks for the end of the newest completed step. EndEpoch calls the hooks for
  // the end of the epoch of this step. EndTraining calls the hooks for the end of training.
  void EndStep();
  void EndEpoch();
  void EndTraining();
  // Call the hooks for the beginning and end of a pass over `split`.
  void BeginPass(Split split);
  void EndPass(Split split, const std::map<std::string, double>& metrics);
  // Updates the moving average of the weights, if the job has a callback for it and the average is
  // due (AverageOptions::every_steps). Called after each step. Does not communicate.
  void AverageWeights();
  // If there is a moving average, makes a pass in which the average replaces the weights. Adds the
  // resulting metrics to `*metrics` as "ema_<name>". Returns false if the pass was stopped.
  bool PassOfAverage(PassOptions options, std::map<std::string, double>* metrics);

 private:
  checkpoint::CallbackRecord& record() { return *state_.extras.callbacks; }
  const checkpoint::CallbackRecord& record() const { return *state_.extras.callbacks; }
  // Removes from the record all entries of callbacks and optimizers that the job no longer has.
  void DropUnknown();
  // Makes the optimizers use the learning rates that callbacks have set.
  void ApplyRates();
  CallbackHostOptions HostOptions();
  absl::Status SaveModel(const std::string& path, bool with_optimizer);
  // Calls `hook` of all callbacks, if this replica is the reporter.
  void Fire(Hook hook, Split split = Split::kTrain, std::map<std::string, double> metrics = {});
  // Sends the requests of the hooks from the reporter to all replicas. Each replica applies them.
  void ExchangeDecisions();
  // Applies requests. Does not communicate.
  void Apply(CallbackDecision decision);
  // Returns the training metrics of the epoch, the metrics of its validation pass as "val_<name>",
  // and "learning_rate".
  std::map<std::string, double> EpochMetrics() const;

  const LoopReplica& loop_;
  Replica* const replica_;
  LoopState& state_;
  // Calls the hooks. Null in all replicas except the reporter.
  std::unique_ptr<CallbackHost> host_;
  bool save_requested_ = false;
};

}  // namespace muster
