#include "chief/parameter_server/training_callbacks.h"

#include <algorithm>

#include "common/base/logging.h"
#include "common/checkpoint/state/callback_place.h"
#include "common/job/finished_run.h"

namespace muster::chief {

bool TrainingCallbacks::IsFinished(const checkpoint::TrainingState& at) const {
  return TrainedToItsEnd(job_, at.step, at.epoch);
}

void TrainingCallbacks::TakeOver(const checkpoint::TrainingState& at,
                                 std::optional<checkpoint::CallbackRecord> record, bool stopped,
                                 std::pair<bool, bool> due) {
  record_.reset();
  if (!state_.has_callbacks()) return;
  record_ = std::move(record);
  const bool all_done = IsFinished(at) || stopped;
  checkpoint::TakeOver({at.step, at.last_epoch(), at.step > 0 && (at.offset == 0 || all_done),
                        all_done, due.first, due.second},
                       &record_);
}

bool TrainingCallbacks::EpochEnded(const checkpoint::TrainingState& at) const {
  return record_ && at.step > 0 && (at.offset == 0 || IsFinished(at)) &&
         record_->epochs_ended <= at.last_epoch();
}

bool TrainingCallbacks::BeginWithWeights(int64_t steps) const {
  return record_ && steps > 0 &&
         std::any_of(record_->kept.begin(), record_->kept.end(),
                     [steps](const auto& kept) { return kept.second == steps; });
}

absl::Status TrainingCallbacks::Begin(const ShardState::CallbackParts& parts, int64_t steps,
                                      bool saved) {
  // Needed even after the end of training, because the remaining passes run hooks.
  MUSTER_RETURN_IF_ERROR(state_.BeginCallbacks(parts, steps > 0 && !record_->ended, &*record_));
  if (record_->ended) {
    // An earlier chief may have held the weights for the last checkpoint only in memory.
    if (record_->weights_of != 0 && WeightsPutBack().empty() && !saved) ForgetWeights(steps);
    return absl::OkStatus();
  }
  CallbackMoment moment;
  moment.step = steps;
  MUSTER_RETURN_IF_ERROR(state_.Fire(Hook::kTrainBegin, moment));
  return Decide();
}

void TrainingCallbacks::ForgetWeights(int64_t steps) {
  LogWarning(
      "cannot restore the weights after step {}: the last checkpoint holds those after step {}",
      record_->weights_of, steps);
  for (auto& [name, note] : record_->notes) {
    if (!note.is_object() || note.value("restored_from_step", Json()) != record_->weights_of)
      continue;
    note.erase("restored_from_step");
    reporter_.Notify(
        [&, &name = name, &note = note](Observer* observer) { observer->OnCallback(name, note); });
  }
  record_->weights_of = 0;
  state_.Adopt(*record_);
}

absl::Status TrainingCallbacks::Decide() {
  MUSTER_ASSIGN_OR_RETURN(std::optional<CallbackDecision> decision, state_.Decide());
  if (!decision) return absl::OkStatus();
  checkpoint::CallbackRecord& next = decision->record;
  next.epochs_begun = record_->epochs_begun;
  next.epochs_ended = record_->epochs_ended;
  next.steps_begun = record_->steps_begun;
  next.steps_ended = record_->steps_ended;
  next.ended = record_->ended;
  record_ = next;
  state_.Adopt(*record_);
  save_requested_ = save_requested_ || decision->save;
  return absl::OkStatus();
}

absl::Status TrainingCallbacks::EndStep(const CompletedStep& step) {
  last_loss_ = step.loss;
  validation_metrics_.clear();
  if (!record_) return absl::OkStatus();
  return state_.Fire(Hook::kStepEnd,
                     {step.step, step.epoch, Split::kTrain, step.loss,
                      reporter_.TrainMetrics(step.epoch_metric_sums, step.epoch_loss_sum,
                                             step.epoch_examples, step.epoch_values)});
}

absl::Status TrainingCallbacks::EndPass(int split, int64_t epoch, int64_t step,
                                        const std::map<std::string, double>& metrics) {
  if (!record_) return absl::OkStatus();
  CallbackMoment moment;
  moment.step = step;
  moment.epoch = epoch;
  moment.split = static_cast<Split>(split);
  moment.metrics = metrics;
  MUSTER_RETURN_IF_ERROR(state_.Fire(Hook::kPassBegin, {step, epoch, moment.split, 0, {}}));
  MUSTER_RETURN_IF_ERROR(state_.Fire(Hook::kPassEnd, std::move(moment)));
  if (split == 1) validation_metrics_ = metrics;
  return absl::OkStatus();
}

absl::Status TrainingCallbacks::BeginEpoch(const checkpoint::TrainingState& at) {
  MUSTER_RETURN_IF_ERROR(state_.Fire(Hook::kEpochBegin, {at.step, at.epoch, Split::kTrain, 0, {}}));
  MUSTER_RETURN_IF_ERROR(Decide());
  record_->epochs_begun = at.epoch + 1;
  return absl::OkStatus();
}

std::map<std::string, double> TrainingCallbacks::EpochMetrics(
    const checkpoint::TrainingState& at) const {
  std::map<std::string, double> metrics = reporter_.TrainMetrics(
      at.epoch_metric_sums, at.epoch_loss_sum, at.epoch_examples, at.extras.epoch_values);
  for (const auto& [name, value] : validation_metrics_) metrics["val_" + name] = value;
  metrics["learning_rate"] = state_.LearningRate(*record_, at.step - 1);
  return metrics;
}

absl::Status TrainingCallbacks::EndEpoch(const checkpoint::TrainingState& at) {
  const int64_t last = at.last_epoch();
  MUSTER_RETURN_IF_ERROR(
      state_.Fire(Hook::kEpochEnd, {at.step, last, Split::kTrain, last_loss_, EpochMetrics(at)}));
  MUSTER_RETURN_IF_ERROR(Decide());
  record_->epochs_ended = last + 1;
  if (!stopping() || IsFinished(at)) return absl::OkStatus();
  LogInfo("training stops after step {} (epoch {}): {}", at.step, last + 1, record_->stop);
  reporter_.Notify([&](Observer* observer) { observer->OnFinish(at.step); });
  return absl::OkStatus();
}

absl::Status TrainingCallbacks::EndTraining(const checkpoint::TrainingState& at) {
  MUSTER_RETURN_IF_ERROR(
      state_.Fire(Hook::kTrainEnd, {at.step, at.last_epoch(), Split::kTrain, last_loss_, {}}));
  MUSTER_RETURN_IF_ERROR(Decide());
  record_->ended = true;
  if (record_->weights_of > 0) LogInfo("restored the weights after step {}", record_->weights_of);
  return absl::OkStatus();
}

std::string TrainingCallbacks::WeightsPutBack() const {
  if (!record_ || !record_->ended || record_->weights_of == 0) return "";
  for (const auto& [name, step] : record_->kept)
    if (step == record_->weights_of) return name;
  return "";
}

}  // namespace muster::chief
