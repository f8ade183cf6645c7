#include "common/train/loop/loop_callbacks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/logging.h"
#include "common/checkpoint/state/callback_place.h"
#include "common/train/callbacks/kept_weights.h"
#include "common/train/loop/loop_reports.h"
#include "common/train/predictor.h"
#include "common/train/state/model_file.h"

namespace muster {

LoopCallbacks::LoopCallbacks(const LoopReplica& loop)
    : loop_(loop), replica_(loop.replica), state_(loop.state) {}

bool LoopCallbacks::TakeSaveRequest() { return std::exchange(save_requested_, false); }

namespace {

std::vector<CallbackHostOptions::Rate> JobRates(const Replica& replica) {
  std::vector<CallbackHostOptions::Rate> rates;
  for (const NamedOptimizer& optimizer : replica.optimizers())
    rates.push_back({optimizer.name, optimizer.learning_rate});
  return rates;
}

}  // namespace

// ---- The state

void LoopCallbacks::TakeOver() {
  std::optional<checkpoint::CallbackRecord>& record = state_.extras.callbacks;
  if (!any()) {
    record.reset();
    return replica_->kept().Only({});
  }
  const bool none = !record;
  checkpoint::TakeOver(
      {state_.step, state_.last_epoch(), state_.epoch_begins() || loop_.IsFinished(),
       loop_.IsFinished(), state_.validation_due, state_.test_due},
      &record);
  // If a run without callbacks was complete, its saved state is final, because no callback has a
  // state to save. If the job was extended, its saved end is not final any more.
  if (none && record->ended) state_.end_saved_step = state_.saved_step;
  if (!record->ended) state_.end_saved_step = -1;
  DropUnknown();
  for (const std::string& line : DropReplacedRates(JobRates(*replica_), &*record))
    if (loop_.reporter()) LogInfo("{}", line);
  std::set<std::string> kept;
  for (const auto& [name, step] : record->kept) kept.insert(name);
  replica_->kept().Only(kept);
  ApplyRates();
}

void LoopCallbacks::DropUnknown() {
  std::set<std::string> names, optimizers;
  for (const NamedCallback& named : replica_->callbacks().callbacks) names.insert(named.name);
  for (const NamedOptimizer& optimizer : replica_->optimizers()) optimizers.insert(optimizer.name);
  const auto gone = [&](const auto& item) { return !names.contains(item.first); };
  std::erase_if(record().states, gone);
  std::erase_if(record().notes, gone);
  std::erase_if(record().kept,
                [&](const auto& item) { return gone(item) || !replica_->kept().Has(item.first); });
  const auto lacks_optimizer = [&](const auto& item) { return !optimizers.contains(item.first); };
  std::erase_if(record().rates, lacks_optimizer);
  std::erase_if(record().rates_of, lacks_optimizer);
}

void LoopCallbacks::ApplyRates() {
  for (NamedOptimizer& optimizer : replica_->optimizers()) {
    const auto rate = record().rates.find(optimizer.name);
    // Ignores the rate if the job now has a schedule.
    if (rate == record().rates.end() || !IsSettable(optimizer.learning_rate)) continue;
    auto schedule = MakeSchedule(rate->second, {});
    ThrowIfError(schedule.status());
    optimizer.schedule = *std::move(schedule);
  }
}

void LoopCallbacks::Begin() {
  if (!any()) return;
  const bool over = loop_.IsFinished() && record().ended;
  if (loop_.reporter()) {
    host_ = std::make_unique<CallbackHost>(HostOptions());
    // Calls Begin even after the end of training: result.json needs the entries of callbacks, and
    // remaining passes call hooks.
    host_->Begin(record(), state_.step > 0 && !over);
  }
  if (over) return;
  Fire(Hook::kTrainBegin);
  ExchangeDecisions();
}

CallbackHostOptions LoopCallbacks::HostOptions() {
  const LoopContext& context = loop_.context;
  CallbackHostOptions options;
  options.callbacks = replica_->callbacks().callbacks;
  options.rates = JobRates(*replica_);
  options.observers = context.observers;
  if (context.checkpoints != nullptr) {
    options.model_dir = context.job.model_dir;
    options.may_write = [this] { return loop_.context.checkpoints->CheckOwner(); };
  }
  options.num_replicas = context.num_replicas;
  options.rate = [this](const std::string& name) {
    for (const NamedOptimizer& optimizer : replica_->optimizers())
      if (optimizer.name == name) return optimizer.schedule->At(state_.step);
    return 0.0;
  };
  options.save_model = [this](const std::string& path, bool with_optimizer) {
    loop_.Enter(Phase::kSave);
    const absl::Status saved = SaveModel(path, with_optimizer);
    loop_.Enter(Phase::kForward);
    return saved;
  };
  options.predict = [this](const data::Batch& batch, const std::vector<std::string>& columns) {
    loop_.Enter(Phase::kEvaluate);
    auto outputs = PredictForHook(replica_, loop_.context.job.precision, batch, columns);
    loop_.Enter(Phase::kForward);
    return outputs;
  };
  return options;
}

absl::Status LoopCallbacks::SaveModel(const std::string& path, bool with_optimizer) {
  MUSTER_ASSIGN_OR_RETURN(auto snapshot, loop_.context.snapshots->Take(*replica_, state_));
  return WriteModelFile(checkpoint::PosixFileSystem(), path, std::move(snapshot), loop_.context.job,
                        with_optimizer);
}

// ---- Hooks

std::map<std::string, double> LoopCallbacks::EpochMetrics() const {
  std::map<std::string, double> metrics = TrainMetrics(*replica_, state_);
  const auto validation = state_.last_passes.find(SplitName(Split::kValidation));
  if (validation != state_.last_passes.end())
    for (const auto& [name, value] : validation->second) metrics["val_" + name] = value;
  if (!replica_->optimizers().empty())
    metrics["learning_rate"] =
        replica_->optimizers()[0].schedule->At(std::max<int64_t>(0, state_.step - 1));
  return metrics;
}

void LoopCallbacks::Fire(Hook hook, Split split, std::map<std::string, double> metrics) {
  if (host_ == nullptr) return;
  CallbackMoment moment;
  const bool begins = hook == Hook::kEpochBegin || hook == Hook::kStepBegin;
  moment.step = state_.step + (hook == Hook::kStepBegin ? 1 : 0);
  moment.epoch = begins ? state_.epoch : state_.last_epoch();
  moment.split = split;
  moment.loss = state_.last_loss;
  moment.metrics = std::move(metrics);
  host_->Fire(hook, std::move(moment));
}

void LoopCallbacks::ExchangeDecisions() {
  std::string text;
  CallbackDecision decision;
  if (host_ != nullptr && host_->TakeDecision(&decision)) text = ToText(decision);
  if (loop_.communicator->size() > 1) {
    loop_.Enter(Phase::kReduce);
    text = BroadcastText(text, replica_->device(), loop_.communicator, 0);
    loop_.Enter(Phase::kForward);
  }
  if (text.empty()) return;
  auto agreed = DecisionFromText(text);
  ThrowIfError(agreed.status());
  Apply(*std::move(agreed));
}

void LoopCallbacks::Apply(CallbackDecision decision) {
  checkpoint::CallbackRecord& next = decision.record;
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
  for (const auto& [what, callback] : decision.weights) {
    if (what == "keep") {
      replica_->kept().Keep(callback);
      next.kept[callback] = state_.step;
      continue;
    }
    next.weights_of = next.kept.at(callback);
    replica_->kept().PutBack(callback);
    for (NamedOptimizer& optimizer : replica_->optimizers()) optimizer.rule->Begin();
  }
  record() = std::move(next);
  save_requested_ = save_requested_ || decision.save;
  ApplyRates();
  if (host_ != nullptr) host_->Adopt(record());
}

void LoopCallbacks::BeginStep() {
  if (!any()) return;
  const bool epoch = state_.epoch_begins() && record().epochs_begun <= state_.epoch;
  const bool step = record().steps_begun <= state_.step;
  if (epoch) Fire(Hook::kEpochBegin);
  if (step) Fire(Hook::kStepBegin);
  if (epoch || (step && replica_->callbacks().decides_in_steps)) ExchangeDecisions();
  record().epochs_begun = std::max(record().epochs_begun, state_.epoch + 1);
  record().steps_begun = state_.step + 1;
  record().weights_of = 0;  // The step changes the weights.
}

void LoopCallbacks::EndStep() {
  if (!any()) return;
  Fire(Hook::kStepEnd, Split::kTrain,
       host_ == nullptr ? std::map<std::string, double>() : TrainMetrics(*replica_, state_));
  if (replica_->callbacks().decides_in_steps) ExchangeDecisions();
  record().steps_ended = state_.step;
}

bool LoopCallbacks::epoch_end_pending() const {
  const bool over = state_.epoch_begins() || loop_.IsFinished() || stopping();
  return any() && state_.step > 0 && over && record().epochs_ended <= state_.last_epoch();
}

void LoopCallbacks::EndEpoch() {
  if (!any()) return;
  Fire(Hook::kEpochEnd, Split::kTrain,
       host_ == nullptr ? std::map<std::string, double>() : EpochMetrics());
  ExchangeDecisions();
  record().epochs_ended = state_.last_epoch() + 1;
}

void LoopCallbacks::EndTraining() {
  if (!any()) return;
  Fire(Hook::kTrainEnd);
  ExchangeDecisions();
  record().ended = true;
  if (loop_.reporter() && record().weights_of > 0)
    LogInfo("restored the weights after step {}", record().weights_of);
}

void LoopCallbacks::BeginPass(Split split) { Fire(Hook::kPassBegin, split); }

void LoopCallbacks::EndPass(Split split, const std::map<std::string, double>& metrics) {
  if (!any()) return;
  Fire(Hook::kPassEnd, split, metrics);
  ExchangeDecisions();
}

// ---- The moving average of the weights

void LoopCallbacks::AverageWeights() {
  const std::optional<AverageOptions>& average = replica_->callbacks().average;
  if (!average || state_.step % average->every_steps != 0) return;
  replica_->kept().Average(average->name, average->decay);
  record().kept.emplace(average->name, state_.step);
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

bool LoopCallbacks::PassOfAverage(PassOptions options, std::map<std::string, double>* metrics) {
  const std::optional<AverageOptions>& average = replica_->callbacks().average;
  if (!average || !replica_->kept().Has(average->name)) return true;
  options.summary = false;
  const AverageInPlace in_place(&replica_->kept(), average->name);
  auto pass = RunPass(loop_.context.job, replica_, loop_.communicator, options);
  if (!pass.ok()) throw StatusError(pass.status());
  for (const auto& [name, value] : pass->metrics) metrics->emplace("ema_" + name, value);
  return !pass->stopped;
}

}  // namespace muster
