// Callbacks of a parameter-server job: their hooks run on the thread that directs, at the ends of
// epochs, between the last step of one and the first lease of the next. What they decide is in the
// record that the servers keep before such a lease is given, so that a successor of this chief goes
// on with it.
#include <fmt/format.h>

#include <algorithm>

#include "chief/director_impl.h"
#include "common/base/logging.h"
#include "common/checkpoint/callback_place.h"

namespace muster {
namespace {

int64_t LastEpoch(const checkpoint::TrainingState& at) {
  return std::max<int64_t>(0, at.epoch - (at.offset == 0 ? 1 : 0));
}

}  // namespace

// The end of the epoch, or of training, has not been heard of.
bool DirectorImpl::CallbacksPending(const checkpoint::TrainingState& at) const {
  if (!callbacks_ || at.step == 0) return false;
  const bool through = Through(at) || Stopping();
  return ((at.offset == 0 || through) && callbacks_->epochs_ended <= LastEpoch(at)) ||
         (through && !callbacks_->ended);
}

void DirectorImpl::TakeOverCallbacks(const checkpoint::TrainingState& at,
                                     std::optional<checkpoint::CallbackRecord> record,
                                     bool finished) {
  callbacks_.reset();
  if (!state_->has_callbacks()) return;
  callbacks_ = std::move(record);
  const bool through = Through(at) || finished;
  checkpoint::TakeOver({at.step, LastEpoch(at), at.step > 0 && (at.offset == 0 || through), through,
                        validation_due_, test_due_},
                       &callbacks_);
  callbacks_begun_ = false;
}

// Whether the replica has the servers' weights of now, and nobody else works with it. Where it has
// not, they are asked for.
bool DirectorImpl::HasWeights(int64_t step) {
  if (save_ != nullptr) return false;
  if (weights_step_ != step) cut_for_callbacks_ = true;
  return weights_step_ == step;
}

absl::Status DirectorImpl::BeginCallbacks() {
  int64_t steps;
  ShardState::CallbackParts parts;
  {
    absl::MutexLock lock(&mu_);
    steps = table_->steps();
    parts.steps_per_epoch = table_->batches_per_epoch();
  }
  if (callbacks_) {
    // What a chief before this one kept in this very step, the servers have.
    const auto of_now = [&](const auto& item) { return item.second == steps; };
    const auto& kept = callbacks_->kept;
    if (save_ != nullptr) return absl::OkStatus();
    if (steps > 0 && std::any_of(kept.begin(), kept.end(), of_now) && !HasWeights(steps))
      return absl::OkStatus();
  }
  callbacks_begun_ = true;
  if (!callbacks_) return absl::OkStatus();
  parts.observers = start_.observers;
  parts.checkpoints = start_.checkpoints;
  parts.workers = options_.workers;
  parts.weights_step = weights_step_;
  parts.steps = [this] {
    absl::MutexLock lock(&mu_);
    return table_->steps();
  };
  // What is being saved has the replica to itself.
  parts.has_weights = [this](int64_t step) { return save_ == nullptr && weights_step_ == step; };
  // Also where training has had its end: passes that are left have their hooks.
  MUSTER_RETURN_IF_ERROR(
      state_->BeginCallbacks(parts, steps > 0 && !callbacks_->ended, &*callbacks_));
  {
    absl::MutexLock lock(&mu_);
    table_->SetRates(callbacks_->rates);
  }
  if (callbacks_->ended) {
    CheckWeightsPutBack(steps);
    return absl::OkStatus();
  }
  CallbackMoment moment;
  moment.step = steps;
  MUSTER_RETURN_IF_ERROR(state_->Fire(Hook::kTrainBegin, moment));
  return Decide();
}

// Weights that are to be in the last checkpoint may have been lost with the chief that had them.
void DirectorImpl::CheckWeightsPutBack(int64_t steps) {
  if (callbacks_->weights_of == 0 || !WeightsPutBack().empty() || IsSaved(steps)) return;
  LogWarning(
      "the weights after step {} cannot be put back: the last checkpoint holds those after "
      "step {}",
      callbacks_->weights_of, steps);
  for (auto& [name, note] : callbacks_->notes) {
    if (!note.is_object() || note.value("restored_from_step", Json()) != callbacks_->weights_of)
      continue;
    note.erase("restored_from_step");
    Tell([&, &name = name, &note = note](Observer* observer) { observer->OnCallback(name, note); });
  }
  callbacks_->weights_of = 0;
  state_->Adopt(*callbacks_);
}

absl::Status DirectorImpl::Decide() {
  MUSTER_ASSIGN_OR_RETURN(std::optional<CallbackDecision> decision, state_->Decide());
  if (!decision) return absl::OkStatus();
  checkpoint::CallbackRecord& next = decision->record;
  next.epochs_begun = callbacks_->epochs_begun;
  next.epochs_ended = callbacks_->epochs_ended;
  next.steps_begun = callbacks_->steps_begun;
  next.steps_ended = callbacks_->steps_ended;
  next.ended = callbacks_->ended;
  callbacks_ = next;
  state_->Adopt(*callbacks_);
  save_requested_ = save_requested_ || decision->save;
  absl::MutexLock lock(&mu_);
  table_->SetRates(callbacks_->rates);
  return absl::OkStatus();
}

// The servers have it before anything is leased that goes by it.
void DirectorImpl::RecordCallbacks() {
  {
    absl::MutexLock lock(&mu_);
    recorded_callbacks_ = checkpoint::ToJson(*callbacks_);
  }
  RecordProgress();
  absl::MutexLock lock(&mu_);
  callbacks_version_ = record_version_;
}

std::map<std::string, double> DirectorImpl::EpochMetrics(
    const checkpoint::TrainingState& at) const {
  std::map<std::string, double> metrics = TrainMetrics(at.epoch_metric_sums, at.epoch_loss_sum,
                                                       at.epoch_examples, at.extras.epoch_values);
  for (const auto& [name, value] : validation_metrics_) metrics["val_" + name] = value;
  metrics["learning_rate"] = state_->LearningRate(*callbacks_, at.step - 1);
  return metrics;
}

// REQUIRES: no lease of training is out, and all steps were told.
absl::Status DirectorImpl::AdvanceCallbacks() {
  if (!callbacks_ || !callbacks_begun_) return absl::OkStatus();
  checkpoint::TrainingState at;
  {
    absl::MutexLock lock(&mu_);
    if (!QuietLocked()) return absl::OkStatus();
    at = table_->state();
  }
  const auto epoch_is_over = [&] {
    return at.step > 0 && (at.offset == 0 || Through(at)) &&
           callbacks_->epochs_ended <= LastEpoch(at);
  };
  const auto is_over = [&] { return Through(at) || Stopping(); };
  // They may remember, and save, the weights of now, which the servers have.
  if ((epoch_is_over() || (is_over() && !callbacks_->ended)) && !HasWeights(at.step))
    return absl::OkStatus();
  if (epoch_is_over()) {
    if (validation_due_ || save_wanted_ || cut_for_callbacks_) return absl::OkStatus();
    MUSTER_RETURN_IF_ERROR(EndEpoch(at));
  }
  if (is_over()) return callbacks_->ended ? absl::OkStatus() : EndTraining(at);
  if (callbacks_->epochs_begun > at.epoch || save_ != nullptr) return absl::OkStatus();
  MUSTER_RETURN_IF_ERROR(
      state_->Fire(Hook::kEpochBegin, {at.step, at.epoch, Split::kTrain, 0, {}}));
  MUSTER_RETURN_IF_ERROR(Decide());
  callbacks_->epochs_begun = at.epoch + 1;
  RecordCallbacks();
  return absl::OkStatus();
}

absl::Status DirectorImpl::EndEpoch(const checkpoint::TrainingState& at) {
  const int64_t last = LastEpoch(at);
  MUSTER_RETURN_IF_ERROR(
      state_->Fire(Hook::kEpochEnd, {at.step, last, Split::kTrain, last_loss_, EpochMetrics(at)}));
  MUSTER_RETURN_IF_ERROR(Decide());
  callbacks_->epochs_ended = last + 1;
  if (Stopping() && !Through(at)) {
    LogInfo("training stops after step {} (epoch {}): {}", at.step, last + 1, callbacks_->stop);
    Tell([&](Observer* observer) { observer->OnFinish(at.step); });
    test_due_ = start_.test_examples > 0;
  }
  const bool measured = options_.job.checkpoint.best_of_training || !validation_metrics_.empty();
  if (measured && !Through(at) && !Stopping()) AskForBest(at.step, last);
  RecordCallbacks();
  return absl::OkStatus();
}

absl::Status DirectorImpl::EndTraining(const checkpoint::TrainingState& at) {
  MUSTER_RETURN_IF_ERROR(
      state_->Fire(Hook::kTrainEnd, {at.step, LastEpoch(at), Split::kTrain, last_loss_, {}}));
  MUSTER_RETURN_IF_ERROR(Decide());
  callbacks_->ended = true;
  if (callbacks_->weights_of > 0)
    LogInfo("the weights after step {} are put back", callbacks_->weights_of);
  RecordCallbacks();
  return absl::OkStatus();
}

// Whose weights the last checkpoint holds in the place of the servers'; "": they are theirs.
std::string DirectorImpl::WeightsPutBack() const {
  if (!callbacks_ || !callbacks_->ended || callbacks_->weights_of == 0) return "";
  for (const auto& [name, step] : callbacks_->kept)
    if (step == callbacks_->weights_of) return name;
  return "";
}

void DirectorImpl::GateCallbacksLocked(LeaseTable::Gate* gate) {
  if (!callbacks_) return;
  gate->closed = gate->closed || !callbacks_begun_;
  const auto keeps = [&](const auto& server) {
    mu_.AssertHeld();
    return server->present() && server->record >= callbacks_version_;
  };
  if (std::any_of(servers_.begin(), servers_.end(), keeps)) epochs_open_ = callbacks_->epochs_begun;
  gate->last_epoch = std::min(gate->last_epoch.value_or(epochs_open_ - 1), epochs_open_ - 1);
}

}  // namespace muster
