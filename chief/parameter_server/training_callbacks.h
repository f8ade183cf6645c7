// TrainingCallbacks runs the callbacks of a parameter-server job. Hooks run on the director's
// thread between an epoch's last step and the next epoch's first lease. The servers store the
// callbacks' decisions in the chief's record before that lease is handed out, so a restarted chief
// resumes with these decisions. Used by one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "chief/leases/work_table.h"
#include "chief/parameter_server/shard_state.h"
#include "chief/parameter_server/training_reporter.h"

namespace muster::chief {

// Returns the epoch of the last step, 0 before the first.
int64_t LastEpoch(const checkpoint::TrainingState& at);

class TrainingCallbacks {
 public:
  // All arguments must outlive this object.
  TrainingCallbacks(const Job& job, ShardState* state, TrainingReporter* reporter)
      : job_(job), state_(*state), reporter_(*reporter) {}

  // Called when training begins or resumes at `at` with the callbacks' `record`. `stopped` is true
  // if a callback had stopped training. `due` says whether the validation pass and the test pass
  // are due.
  void TakeOver(const checkpoint::TrainingState& at,
                std::optional<checkpoint::CallbackRecord> record, bool stopped,
                std::pair<bool, bool> due);
  // Returns whether training has no step left after the state `at`, by the job's epochs and steps.
  bool IsFinished(const checkpoint::TrainingState& at) const;
  // Returns nullopt if the job has no callbacks. The other functions require callbacks, except for
  // IsFinished.
  const std::optional<checkpoint::CallbackRecord>& record() const { return record_; }
  bool exist() const { return record_.has_value(); }
  bool ended() const { return record_ && record_->ended; }
  // Returns whether no hook for the end of training is left to run.
  bool hooks_ended() const { return !exist() || ended(); }
  bool stopping() const { return record_ && !record_->stop.empty(); }
  // EpochEnded and EpochBegins return whether an epoch has ended, or begins, and its hooks have not
  // run yet.
  bool EpochEnded(const checkpoint::TrainingState& at) const;
  bool EpochBegins(const checkpoint::TrainingState& at) const {
    return record_ && record_->epochs_begun <= at.epoch;
  }
  // Returns whether callbacks begin with weights that they saved after step `steps`. The servers
  // have these weights too.
  bool BeginWithWeights(int64_t steps) const;

  // Begins callbacks after step `steps`. `saved` is true if a checkpoint has the state after this
  // step.
  absl::Status Begin(const ShardState::CallbackParts& parts, int64_t steps, bool saved);
  absl::Status EndStep(const CompletedStep& step);
  absl::Status EndPass(int split, int64_t epoch, int64_t step,
                       const std::map<std::string, double>& metrics);
  absl::Status BeginEpoch(const checkpoint::TrainingState& at);
  absl::Status EndEpoch(const checkpoint::TrainingState& at);
  absl::Status EndTraining(const checkpoint::TrainingState& at);

  // Returns whether a callback has asked to save the state since the last TakeSaveRequest.
  bool save_requested() const { return save_requested_; }
  bool TakeSaveRequest() { return std::exchange(save_requested_, false); }
  // Returns whether the metric that selects the best checkpoint is known for the last epoch.
  bool Measured() const { return job_.checkpoint.best_of_training || !validation_metrics_.empty(); }
  // If the last checkpoint has the weights of a callback instead of the servers' weights, returns
  // the name of the callback. Otherwise returns "".
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
  // Metrics of the last epoch's validation pass.
  std::map<std::string, double> validation_metrics_;
  double last_loss_ = 0;
};

}  // namespace muster::chief
