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

absl::Status DirectorImpl::BeginCallbacks() {
  callbacks_begun_ = true;
  if (!callbacks_) return absl::OkStatus();
  int64_t steps;
  {
    absl::MutexLock lock(&mu_);
    steps = table_->steps();
    table_->SetRates(callbacks_->rates);
  }
  if (callbacks_->ended) return absl::OkStatus();
  ShardState::CallbackParts parts;
  parts.observers = start_.observers;
  parts.checkpoints = start_.checkpoints;
  parts.workers = options_.workers;
  parts.rate = [this](const std::string& optimizer) -> std::optional<double> {
    const auto rate = last_rates_.find(optimizer);
    return rate == last_rates_.end() ? std::nullopt : std::optional<double>(rate->second);
  };
  // What is being saved has the replica to itself.
  parts.has_weights = [this](int64_t step) { return save_ == nullptr && weights_step_ == step; };
  MUSTER_RETURN_IF_ERROR(state_->BeginCallbacks(parts, steps > 0, &*callbacks_));
  CallbackMoment moment;
  moment.step = steps;
  MUSTER_RETURN_IF_ERROR(state_->Fire(Hook::kTrainBegin, moment));
  return Decide();
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
  metrics["learning_rate"] = last_rate_;
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
  const int64_t last = LastEpoch(at);
  CallbackMoment moment;
  moment.step = at.step;
  moment.epoch = last;
  moment.loss = last_loss_;
  if (at.step > 0 && (at.offset == 0 || Through(at)) && callbacks_->epochs_ended <= last) {
    // They may remember, and save, the weights of now, which the servers have.
    if (weights_step_ != at.step && save_ == nullptr) cut_for_callbacks_ = true;
    if (weights_step_ != at.step || validation_due_ || save_ != nullptr || save_wanted_ ||
        cut_for_callbacks_)
      return absl::OkStatus();
    moment.metrics = EpochMetrics(at);
    MUSTER_RETURN_IF_ERROR(state_->Fire(Hook::kEpochEnd, std::move(moment)));
    MUSTER_RETURN_IF_ERROR(Decide());
    callbacks_->epochs_ended = last + 1;
    if (Stopping() && !Through(at)) {
      LogInfo("training stops after step {} (epoch {}): {}", at.step, last + 1, callbacks_->stop);
      Tell([&](Observer* observer) { observer->OnFinish(at.step); });
      test_due_ = start_.test_examples > 0;
    }
    const bool measured = options_.job.checkpoint.best_of_training || !validation_metrics_.empty();
    if (measured && !Through(at) && !Stopping()) AskForBest(at.step, last);
    moment = {};
    moment.step = at.step;
    moment.epoch = last;
    RecordCallbacks();
  }
  if (Through(at) || Stopping()) {
    if (callbacks_->ended) return absl::OkStatus();
    MUSTER_RETURN_IF_ERROR(state_->Fire(Hook::kTrainEnd, std::move(moment)));
    MUSTER_RETURN_IF_ERROR(Decide());
    callbacks_->ended = true;
    saved_step_ = -1;  // the state is another one than that which may have been saved
    if (callbacks_->weights_of > 0)
      LogInfo("the weights after step {} are put back", callbacks_->weights_of);
    RecordCallbacks();
    return absl::OkStatus();
  }
  if (callbacks_->epochs_begun <= at.epoch) {
    moment.epoch = at.epoch;
    MUSTER_RETURN_IF_ERROR(state_->Fire(Hook::kEpochBegin, std::move(moment)));
    MUSTER_RETURN_IF_ERROR(Decide());
    callbacks_->epochs_begun = at.epoch + 1;
    RecordCallbacks();
  }
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
  const auto keeps = [&](const auto& server) {
    mu_.AssertHeld();
    return server->present() && server->record >= callbacks_version_;
  };
  if (std::any_of(servers_.begin(), servers_.end(), keeps)) epochs_open_ = callbacks_->epochs_begun;
  gate->last_epoch = std::min(gate->last_epoch.value_or(epochs_open_ - 1), epochs_open_ - 1);
}

}  // namespace muster
