// Callbacks of a parameter-server job: their hooks run on the thread that directs, at the ends of
// epochs, between the last step of one and the first lease of the next. What they decide is in the
// record that the servers keep before such a lease is given, so that a chief that is restarted goes
// on with it. For one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "chief/shard_state.h"
#include "chief/training_reporter.h"
#include "chief/work_table.h"

namespace muster {

// The epoch of the last step; 0 before the first.
int64_t LastEpoch(const checkpoint::TrainingState& at);

class TrainingCallbacks {
 public:
  // All outlive this object.
  TrainingCallbacks(const Job& job, ShardState* state, TrainingReporter* reporter)
      : job_(job), state_(*state), reporter_(*reporter) {}

  // Training goes on there, with this record; `stopped`: a callback had stopped it. `due`: passes
  // of validation and test.
  void TakeOver(const checkpoint::TrainingState& at,
                std::optional<checkpoint::CallbackRecord> record, bool stopped,
                std::pair<bool, bool> due);
  // nullopt: there are none; the rest of this class is for those that are there.
  const std::optional<checkpoint::CallbackRecord>& record() const { return record_; }
  bool exist() const { return record_.has_value(); }
  bool ended() const { return record_ && record_->ended; }
  bool stopping() const { return record_ && !record_->stop.empty(); }
  // What has ended, or begins, without their having heard of it.
  bool EpochEnded(const checkpoint::TrainingState& at) const;
  bool EpochBegins(const checkpoint::TrainingState& at) const {
    return record_ && record_->epochs_begun <= at.epoch;
  }
  // They begin with weights that they kept in this very step, which the servers have.
  bool BeginWithWeights(int64_t steps) const;

  // `saved`: a checkpoint has the state after these steps.
  absl::Status Begin(const ShardState::CallbackParts& parts, int64_t steps, bool saved);
  absl::Status EndStep(const CompletedStep& step);
  absl::Status EndPass(int split, int64_t epoch, int64_t step,
                       const std::map<std::string, double>& metrics);
  absl::Status BeginEpoch(const checkpoint::TrainingState& at);
  absl::Status EndEpoch(const checkpoint::TrainingState& at);
  absl::Status EndTraining(const checkpoint::TrainingState& at);

  // Whether a callback has wanted the state saved since the last TakeSaveRequest.
  bool save_requested() const { return save_requested_; }
  bool TakeSaveRequest() { return std::exchange(save_requested_, false); }
  // What best checkpoints go by is known of the last epoch.
  bool Measured() const { return job_.checkpoint.best_of_training || !validation_metrics_.empty(); }
  // Whose weights the last checkpoint holds in the place of the servers'; "": none.
  std::string WeightsPutBack() const;

 private:
  bool IsFinished(const checkpoint::TrainingState& at) const;
  absl::Status Decide();
  void ForgetWeights(int64_t steps);
  std::map<std::string, double> EpochMetrics(const checkpoint::TrainingState& at) const;

  const Job& job_;
  ShardState& state_;
  TrainingReporter& reporter_;
  std::optional<checkpoint::CallbackRecord> record_;
  bool save_requested_ = false;
  std::map<std::string, double> validation_metrics_;  // of the last epoch
  double last_loss_ = 0;
};

}  // namespace muster
