// The callbacks of the training loop. Hooks run only on rank 0's first replica, and the loop sends
// their requests to all replicas. What hooks see, keep and request is part of the training state.
// If a process is lost within a hook, the hook is called again with the previous state. A hook
// whose requests have reached the replicas is not called again.
#include <fmt/format.h>

#include "common/base/logging.h"
#include "common/checkpoint/callback_place.h"
#include "common/train/callbacks/kept_weights.h"
#include "common/train/loop.h"
#include "common/train/predictor.h"
#include "common/train/state/model_file.h"

namespace muster {

bool LoopImpl::HasCallbacks() const { return !replica_->callbacks().callbacks.empty(); }

namespace {

std::vector<CallbackHostOptions::Rate> JobRates(const Replica& replica) {
  std::vector<CallbackHostOptions::Rate> rates;
  for (const NamedOptimizer& optimizer : replica.optimizers())
    rates.push_back({optimizer.name, optimizer.learning_rate});
  return rates;
}

}  // namespace

// ---- The state

void LoopImpl::TakeOverCallbacks() {
  std::optional<checkpoint::CallbackRecord>& record = state_.extras.callbacks;
  if (!HasCallbacks()) {
    record.reset();
    return replica_->kept().Only({});
  }
  const bool none = !record;
  checkpoint::TakeOver({state_.steps, state_.last_epoch(), state_.epoch_begins() || IsFinished(),
                        IsFinished(), state_.validation_due, state_.test_due},
                       &record);
  // If a run without callbacks was complete, its saved state is final, because no callback has a
  // state to save. If the job was extended, its saved end is not final any more.
  if (none && record->ended) state_.end_saved_step = state_.saved_step;
  if (!record->ended) state_.end_saved_step = -1;
  // The job's callbacks and optimizers may have changed since the save.
  std::set<std::string> names, optimizers;
  for (const NamedCallback& named : replica_->callbacks().callbacks) names.insert(named.name);
  for (const NamedOptimizer& optimizer : replica_->optimizers()) optimizers.insert(optimizer.name);
  const auto gone = [&](const auto& item) { return !names.contains(item.first); };
  std::erase_if(record->states, gone);
  std::erase_if(record->notes, gone);
  std::erase_if(record->kept,
                [&](const auto& item) { return gone(item) || !replica_->kept().Has(item.first); });
  const auto lacks_optimizer = [&](const auto& item) { return !optimizers.contains(item.first); };
  std::erase_if(record->rates, lacks_optimizer);
  std::erase_if(record->rates_of, lacks_optimizer);
  for (const std::string& line : DropReplacedRates(JobRates(*replica_), &*record))
    if (loop_.reporter()) LogInfo("{}", line);
  std::set<std::string> kept;
  for (const auto& [name, step] : record->kept) kept.insert(name);
  replica_->kept().Only(kept);
  ApplyRates();
}

void LoopImpl::ApplyRates() {
  for (NamedOptimizer& optimizer : replica_->optimizers()) {
    const auto rate = record().rates.find(optimizer.name);
    // Ignores the rate if the job now has a schedule.
    if (rate == record().rates.end() || !IsSettable(optimizer.learning_rate)) continue;
    auto schedule = MakeSchedule(rate->second, {});
    ThrowIfError(schedule.status());
    optimizer.schedule = *std::move(schedule);
  }
}

void LoopImpl::BeginCallbacks() {
  if (!HasCallbacks()) return;
  const bool over = IsFinished() && record().ended;
  if (loop_.reporter()) {
    CallbackHostOptions options;
    options.callbacks = replica_->callbacks().callbacks;
    options.rates = JobRates(*replica_);
    options.observers = context_.observers;
    if (context_.checkpoints != nullptr) {
      options.model_dir = context_.job.model_dir;
      options.may_write = [this] { return context_.checkpoints->CheckOwner(); };
    }
    options.num_replicas = context_.num_replicas;
    options.rate = [this](const std::string& name) {
      for (const NamedOptimizer& optimizer : replica_->optimizers())
        if (optimizer.name == name) return optimizer.schedule->At(state_.steps);
      return 0.0;
    };
    options.save_model = [this](const std::string& path, bool with_optimizer) {
      loop_.Enter(Phase::kSave);
      auto snapshot = context_.snapshots->Take(*replica_, state_);
      const absl::Status saved =
          snapshot.ok() ? WriteModelFile(checkpoint::PosixFileSystem(), path, *std::move(snapshot),
                                         context_.job, with_optimizer)
                        : snapshot.status();
      loop_.Enter(Phase::kForward);
      return saved;
    };
    options.predict = [this](const data::Batch& batch, const std::vector<std::string>& columns) {
      loop_.Enter(Phase::kEvaluate);
      auto outputs = PredictForHook(replica_, context_.job.precision, batch, columns);
      loop_.Enter(Phase::kForward);
      return outputs;
    };
    host_ = std::make_unique<CallbackHost>(std::move(options));
    // Calls Begin even after the end of training: result.json needs the entries of callbacks, and
    // remaining passes call hooks.
    host_->Begin(record(), state_.steps > 0 && !over);
  }
  if (over) return;
  Fire(Hook::kTrainBegin);
  ExchangeDecisions();
}

// ---- Hooks

std::map<std::string, double> LoopImpl::EpochMetrics() const {
  std::map<std::string, double> metrics = TrainMetrics(*replica_, state_);
  const auto validation = state_.last_passes.find(SplitName(Split::kValidation));
  if (validation != state_.last_passes.end())
    for (const auto& [name, value] : validation->second) metrics["val_" + name] = value;
  if (!replica_->optimizers().empty())
    metrics["learning_rate"] =
        replica_->optimizers()[0].schedule->At(std::max<int64_t>(0, state_.steps - 1));
  return metrics;
}

void LoopImpl::Fire(Hook hook, Split split, std::map<std::string, double> metrics) {
  if (host_ == nullptr) return;
  CallbackMoment moment;
  const bool begins = hook == Hook::kEpochBegin || hook == Hook::kStepBegin;
  moment.step = state_.steps + (hook == Hook::kStepBegin ? 1 : 0);
  moment.epoch = begins ? state_.position.epoch : state_.last_epoch();
  moment.split = split;
  moment.loss = state_.last_loss;
  moment.metrics = std::move(metrics);
  host_->Fire(hook, std::move(moment));
}

void LoopImpl::ExchangeDecisions() {
  std::string text;
  CallbackDecision decision;
  if (host_ != nullptr && host_->TakeDecision(&decision)) text = ToText(decision);
  if (communicator_->size() > 1) {
    loop_.Enter(Phase::kReduce);
    text = BroadcastText(text, replica_->device(), communicator_, 0);
    loop_.Enter(Phase::kForward);
  }
  if (text.empty()) return;
  auto told = DecisionFromText(text);
  ThrowIfError(told.status());
  // From here on, no communication is needed.
  checkpoint::CallbackRecord& next = told->record;
  next.epochs_begun = record().epochs_begun;
  next.epochs_ended = record().epochs_ended;
  next.steps_begun = record().steps_begun;
  next.steps_ended = record().steps_ended;
  next.ended = record().ended;
  // Keeps the entry of the moving average, which the loop updates without a request.
  if (const std::optional<AverageOptions>& average = replica_->callbacks().average) {
    const auto kept = record().kept.find(average->name);
    if (kept != record().kept.end()) next.kept.insert(*kept);
  }
  // Copies of weights are made here, possibly some steps after the hook requested them.
  next.weights_of = record().weights_of;
  for (const auto& [what, callback] : told->weights) {
    if (what == "keep") {
      replica_->kept().Keep(callback);
      next.kept[callback] = state_.steps;
      continue;
    }
    next.weights_of = next.kept.at(callback);
    replica_->kept().PutBack(callback);
    for (NamedOptimizer& optimizer : replica_->optimizers()) optimizer.rule->Begin();
  }
  record() = std::move(next);
  save_requested_ = save_requested_ || told->save;
  ApplyRates();
  if (host_ != nullptr) host_->Adopt(record());
}

void LoopImpl::BeforeStep() {
  if (!HasCallbacks()) return;
  const bool epoch = state_.epoch_begins() && record().epochs_begun <= state_.position.epoch;
  const bool step = record().steps_begun <= state_.steps;
  if (epoch) Fire(Hook::kEpochBegin);
  if (step) Fire(Hook::kStepBegin);
  if (epoch || (step && replica_->callbacks().decides_in_steps)) ExchangeDecisions();
  record().epochs_begun = std::max(record().epochs_begun, state_.position.epoch + 1);
  record().steps_begun = state_.steps + 1;
  record().weights_of = 0;  // The step changes the weights.
}

void LoopImpl::AfterStep() {
  Fire(Hook::kStepEnd, Split::kTrain,
       host_ == nullptr ? std::map<std::string, double>() : TrainMetrics(*replica_, state_));
  if (replica_->callbacks().decides_in_steps) ExchangeDecisions();
  record().steps_ended = state_.steps;
  // A stop that a callback requests in the middle of an epoch ends the epoch.
  if (Stopping() && !state_.epoch_begins() && !IsFinished()) EndEpoch();
}

void LoopImpl::AverageWeights() {
  const std::optional<AverageOptions>& average = replica_->callbacks().average;
  if (!average || state_.steps % average->every_steps != 0) return;
  replica_->kept().Average(average->name, average->decay);
  record().kept.emplace(average->name, state_.steps);
}

namespace {

// While an object exists, the moving average is in the place of the weights. The destructor
// restores the weights, also after an exception.
class AverageInPlace {
 public:
  AverageInPlace(KeptWeights* kept, const std::string& name) : kept_(kept), name_(name) {
    kept_->Swap(name_);
  }
  ~AverageInPlace() { kept_->Swap(name_); }
  AverageInPlace(const AverageInPlace&) = delete;
  AverageInPlace& operator=(const AverageInPlace&) = delete;

 private:
  KeptWeights* const kept_;
  const std::string name_;
};

}  // namespace

bool LoopImpl::PassOfAverage(PassOptions options, std::map<std::string, double>* metrics) {
  const std::optional<AverageOptions>& average = replica_->callbacks().average;
  if (!average || !replica_->kept().Has(average->name)) return true;
  options.summary = false;
  const AverageInPlace in_place(&replica_->kept(), average->name);
  auto pass = RunPass(context_.job, replica_, communicator_, options);
  if (!pass.ok()) throw StatusError(pass.status());
  for (const auto& [name, value] : pass->metrics) metrics->emplace("ema_" + name, value);
  return !pass->stopped;
}

// ---- The end of epochs and of training

bool LoopImpl::EpochEndPending() const {
  const bool over = state_.epoch_begins() || IsFinished() || Stopping();
  return HasCallbacks() && state_.steps > 0 && over && record().epochs_ended <= state_.last_epoch();
}

void LoopImpl::Settle() {
  if (!HasCallbacks() || stop_ || state_.steps == 0) return;
  // If a replica was lost here, the hook of this step may not have run.
  if (record().steps_ended < state_.steps) AfterStep();
  // The validation pass must come first, because the epoch's metrics include its metrics.
  if (fitting_ && state_.validation_due) return;
  bool asks_for_best = false;
  if (EpochEndPending()) {
    Fire(Hook::kEpochEnd, Split::kTrain,
         host_ == nullptr ? std::map<std::string, double>() : EpochMetrics());
    ExchangeDecisions();
    record().epochs_ended = state_.last_epoch() + 1;
    // If a callback has restored weights, the metrics do not belong to them.
    asks_for_best =
        record().weights_of == 0 && (context_.job.checkpoint.best_of_training ||
                                     state_.last_passes.contains(SplitName(Split::kValidation)));
  }
  if (Stopping() && !state_.extras.finished) {
    state_.extras.finished = true;
    state_.test_due = fitting_ && loop_.Has(Split::kTest);
    if (loop_.reporter()) {
      LogInfo("training stops after step {} (epoch {}): {}", state_.steps, state_.last_epoch() + 1,
              record().stop);
    }
    reports_.Finish();
  }
  if (IsFinished() && !record().ended) {
    Fire(Hook::kTrainEnd);
    ExchangeDecisions();
    record().ended = true;
    if (loop_.reporter() && record().weights_of > 0)
      LogInfo("restored the weights after step {}", record().weights_of);
  }
  if (!IsFinished() && (save_requested_ || asks_for_best))
    Save(save_requested_ || state_.saved_step != state_.steps, asks_for_best);
}

void LoopImpl::SaveEnd() {
  if (!HasCallbacks() || stop_ || end_saved_ || state_.steps == 0) return;
  if (!IsFinished() || !record().ended || (fitting_ && (state_.validation_due || state_.test_due)))
    return;
  end_saved_ = true;
  // A lost member may have prevented an earlier save of this state. The saving process knows from
  // end_saved_step whether it has saved.
  Save(/*again=*/state_.end_saved_step != state_.steps);
  CheckReplicasEqual();
}

}  // namespace muster
