// TrainingCallbacks decides when the callbacks of a parameter-server job run, and keeps the
// callbacks' state. Hooks (a callback's functions) run on the thread of Director::Run. After the
// last step of an epoch, the chief runs the hooks for the end of this epoch and for the start of
// the next epoch. The chief gives the first batch of the next epoch to a worker only after a server
// has stored a ChiefRecord (chief/leases/chief_record.h) with the callbacks' decisions. A restarted
// chief therefore continues with these decisions. Used by one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "chief/leases/work_table.h"
#include "chief/parameter_server/shard_state.h"
#include "chief/parameter_server/training_reporter.h"

namespace muster::chief {

class TrainingCallbacks {
 public:
  // All arguments must outlive this object.
  TrainingCallbacks(const Job& job, ShardState* state, TrainingReporter* reporter)
      : job_(job), state_(*state), reporter_(*reporter) {}

  // Called when training begins or resumes at the state `at`. `record` is the state of the
  // callbacks, nullopt if none was saved. `stopped` is true if a callback had stopped training
  // before `at` was saved. `due` tells whether the validation pass and the test pass are due.
  void TakeOver(const checkpoint::TrainingState& at,
                std::optional<checkpoint::CallbackRecord> record, bool stopped,
                std::pair<bool, bool> due);
  // Returns whether training, at the state `at`, has reached the job's number of epochs or its
  // number of steps.
  bool IsFinished(const checkpoint::TrainingState& at) const;
  // Returns the state of the callbacks, nullopt if the job has none.
  const std::optional<checkpoint::CallbackRecord>& record() const { return record_; }
  bool exist() const { return record_.has_value(); }
  // Returns whether the hooks for the end of training have run. False if there are no callbacks.
  bool ended() const { return record_ && record_->ended; }
  // Returns whether the hooks for the end of training have run. True if there are no callbacks.
  bool hooks_ended() const { return !exist() || ended(); }
  // Returns whether a callback has stopped training.
  bool stopping() const { return record_ && !record_->stop.empty(); }
  // EpochEnded returns whether the hooks for the end of an epoch must run at the state `at`.
  // EpochBegins returns whether the hooks for the start of an epoch must run at this state.
  bool EpochEnded(const checkpoint::TrainingState& at) const;
  bool EpochBegins(const checkpoint::TrainingState& at) const {
    return record_ && record_->epochs_begun <= at.epoch;
  }
  // Returns whether a callback's kept weights are those after step `steps`, the newest completed
  // step. When training resumes, the chief's replica may no longer hold the kept weights. The
  // servers hold the same weights, so the chief reads the weights from the servers before it runs
  // the hooks for the start of training.
  bool BeginWithWeights(int64_t steps) const;

  // ---- Run hooks
  //
  // These functions REQUIRE exist(), except EndStep and EndPass. If there are no callbacks, EndStep
  // and EndPass run no hooks.
  //
  // Runs the hooks for the start of training. `steps` is the newest completed step. `saved` is true
  // if a checkpoint has the state after this step.
  absl::Status Begin(const ShardState::CallbackParts& parts, int64_t steps, bool saved);
  absl::Status EndStep(const CompletedStep& step);
  absl::Status EndPass(int split, int64_t epoch, int64_t step,
                       const std::map<std::string, double>& metrics);
  absl::Status BeginEpoch(const checkpoint::TrainingState& at);
  absl::Status EndEpoch(const checkpoint::TrainingState& at);
  absl::Status EndTraining(const checkpoint::TrainingState& at);

  // Both functions return whether a callback has requested a save since the last TakeSaveRequest.
  bool save_requested() const { return save_requested_; }
  bool TakeSaveRequest() { return std::exchange(save_requested_, false); }
  // Returns whether the metric that selects the best checkpoint is known for the last epoch.
  bool Measured() const { return job_.checkpoint.best_of_training || !validation_metrics_.empty(); }
  // At the end of training, a callback may put its kept weights into the last checkpoint, in place
  // of the servers' weights. Returns the name of this callback, "" if there is none.
  std::string WeightsPutBack() const;

 private:
  absl::Status Decide();
  void ForgetWeights(int64_t steps);
  std::map<std::string, double> EpochMetrics(const checkpoint::TrainingState& at) const;

  const Job& job_;
  ShardState& state_;
  TrainingReporter& reporter_;
  std::optional<checkpoint::CallbackRecord> record_;
  bool save_requested_ = false;
  // The metrics of the validation pass after the newest completed step. Empty if there was no pass.
  std::map<std::string, double> validation_metrics_;
  double last_loss_ = 0;
};

}  // namespace muster::chief
