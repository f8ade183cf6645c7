#include "chief/parameter_server/replica_callbacks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/logging.h"
#include "common/train/callbacks/callbacks.h"
#include "common/train/callbacks/kept_weights.h"
#include "common/train/loop/loop.h"
#include "common/train/predictor.h"
#include "common/train/replica/replica.h"
#include "common/train/state/model_file.h"
#include "common/train/state/snapshot.h"

namespace muster::chief {

ReplicaCallbacks::ReplicaCallbacks(const Job& job, Replica* replica)
    : job_(job), replica_(replica), has_slots_(!SlotInfos(*replica).empty()) {}

void ReplicaCallbacks::Restored(const checkpoint::TrainingState& restored) {
  if (restored.extras.callbacks) kept_steps_ = restored.extras.callbacks->kept;
  restored_step_ = restored.step;
}

absl::Status ReplicaCallbacks::Begin(const Parts& parts, bool begun,
                                     checkpoint::CallbackRecord* record) {
  DropUnknown(record);
  TakeOverWeights(parts.weights_step, record);
  MUSTER_RETURN_IF_ERROR(AttachSchedules(parts));
  CallbackHostOptions options = HostOptions(parts);
  for (const std::string& line : DropReplacedRates(options.rates, record)) LogInfo("{}", line);
  host_ = std::make_unique<CallbackHost>(std::move(options));
  return CatchProgramErrors("a callback", [&] { host_->Begin(*record, begun); });
}

// Drops the entries of callbacks that the job no longer has.
void ReplicaCallbacks::DropUnknown(checkpoint::CallbackRecord* record) const {
  const auto& callbacks = replica_->callbacks().callbacks;
  const auto gone = [&](const auto& item) {
    return std::none_of(callbacks.begin(), callbacks.end(),
                        [&](const NamedCallback& one) { return one.name == item.first; });
  };
  std::erase_if(record->states, gone);
  std::erase_if(record->notes, gone);
  std::erase_if(record->kept, gone);
}

// Returns whether the replica holds the weights that `callback` kept after `step`.
bool ReplicaCallbacks::HasKept(const std::string& callback, int64_t step) const {
  const auto known = kept_steps_.find(callback);
  return replica_->kept().Has(callback) && known != kept_steps_.end() && known->second == step;
}

// Drops entries of weights that this process does not have. They were lost with an earlier chief.
void ReplicaCallbacks::TakeOverWeights(int64_t weights_step, checkpoint::CallbackRecord* record) {
  std::set<std::string> kept;
  for (auto it = record->kept.begin(); it != record->kept.end();) {
    const auto& [name, step] = *it;
    bool has = HasKept(name, step);
    if (!has && (step == restored_step_ || step == weights_step)) {
      replica_->kept().Keep(name);
      kept_steps_[name] = step;
      has = true;
    }
    if (has) {
      kept.insert(name);
      ++it;
      continue;
    }
    LogWarning("the weights after step {}, which callback \"{}\" remembers, were lost with a chief",
               step, name);
    it = record->kept.erase(it);
  }
  replica_->kept().Only(kept);
}

// Sets the optimizers' schedules. Workers use the same values.
absl::Status ReplicaCallbacks::AttachSchedules(const Parts& parts) {
  const ScheduleContext schedule = {parts.steps_per_epoch, TotalSteps(job_, parts.steps_per_epoch),
                                    parts.workers};
  return replica_->Attach(std::vector<std::unique_ptr<GradientSink>>(replica_->optimizers().size()),
                          schedule);
}

std::vector<CallbackHostOptions::Rate> ReplicaCallbacks::Rates() const {
  std::vector<CallbackHostOptions::Rate> rates;
  for (const NamedOptimizer& optimizer : replica_->optimizers())
    rates.push_back({optimizer.name, optimizer.learning_rate});
  return rates;
}

CallbackHostOptions ReplicaCallbacks::HostOptions(const Parts& parts) {
  CallbackHostOptions options;
  options.callbacks = replica_->callbacks().callbacks;
  options.rates = Rates();
  options.observers = parts.observers;
  if (parts.checkpoints != nullptr) {
    options.model_dir = job_.model_dir;
    options.may_write = [sink = parts.checkpoints] { return sink->CheckOwner(); };
  }
  options.num_replicas = parts.workers;
  options.rate = [this, steps = parts.steps](const std::string& optimizer) {
    return ScheduledRate(optimizer, steps());
  };
  options.save_model = [this](const std::string& path, bool with_optimizer) {
    return SaveModel(path, with_optimizer);
  };
  options.predict = [this, has_weights = parts.has_weights](
                        const data::Batch& batch, const std::vector<std::string>& columns) {
    return Predict(has_weights, batch, columns);
  };
  return options;
}

// Returns 0 if there is no such optimizer.
double ReplicaCallbacks::ScheduledRate(const std::string& optimizer, int64_t steps) const {
  for (const NamedOptimizer& one : replica_->optimizers())
    if (one.name == optimizer) return one.schedule->At(steps);
  return 0;
}

absl::Status ReplicaCallbacks::SaveModel(const std::string& path, bool with_optimizer) const {
  if (hook_ != Hook::kEpochEnd && hook_ != Hook::kTrainEnd)
    return ProgramError(
        "a callback calls save_model in the middle of an epoch, where with parameter servers "
        "nobody holds all weights of one step: call it in epoch_end or train_end");
  MUSTER_ASSIGN_OR_RETURN(checkpoint::Snapshot snapshot,
                          SnapshotTaker::View(*replica_, InitialLoopState(job_, *replica_)));
  if (with_optimizer && slots_.tensors.empty() && has_slots_)
    return ConfigurationError(
        "with parameter servers a callback saves the state of optimizers from a file of "
        "model_dir, and there is none");
  snapshot.optimizer = slots_;
  return WriteModelFile(checkpoint::PosixFileSystem(), path, std::move(snapshot), job_,
                        with_optimizer);
}

absl::StatusOr<at::Tensor> ReplicaCallbacks::Predict(
    const std::function<bool(int64_t step)>& has_weights, const data::Batch& batch,
    const std::vector<std::string>& columns) {
  if (!has_weights(fired_step_))
    return ConfigurationError(
        "with parameter servers the chief has their weights at the ends of epochs alone: predict "
        "in epoch_end or train_end");
  return PredictForHook(replica_, job_.precision, batch, columns);
}

absl::Status ReplicaCallbacks::Fire(Hook hook, CallbackMoment moment) {
  fired_step_ = moment.step;
  hook_ = hook;
  return CatchProgramErrors("a callback", [&] { host_->Fire(hook, std::move(moment)); });
}

absl::StatusOr<std::optional<CallbackDecision>> ReplicaCallbacks::Decide() {
  CallbackDecision decision;
  bool decided = false;
  MUSTER_RETURN_IF_ERROR(
      CatchProgramErrors("a callback", [&] { decided = host_->TakeDecision(&decision); }));
  if (!decided) return std::optional<CallbackDecision>();
  for (const auto& [what, callback] : decision.weights) {
    if (what == "keep") {
      replica_->kept().Keep(callback);
      kept_steps_[callback] = decision.record.kept.at(callback);
    } else {
      replica_->kept().PutBack(callback);
    }
  }
  return decision;
}

double ReplicaCallbacks::LearningRate(const checkpoint::CallbackRecord& record,
                                      int64_t steps) const {
  if (replica_->optimizers().empty()) return 0;
  const NamedOptimizer& first = replica_->optimizers()[0];
  const auto set = record.rates.find(first.name);
  return set != record.rates.end() ? set->second : first.schedule->At(std::max<int64_t>(0, steps));
}

void ReplicaCallbacks::PutBackWeights(const std::string& callback) {
  if (replica_->kept().Has(callback)) replica_->kept().PutBack(callback);
}

}  // namespace muster::chief
