#include "chief/parameter_server/director/director_epochs.h"

#include <fmt/format.h>

#include <map>
#include <tuple>
#include <vector>

namespace muster::chief {

checkpoint::TrainingState DirectorEpochs::CurrentState() const {
  return DirectorMembers::Lock(parts_.members)->work().state();
}

// ---- The start

absl::Status DirectorEpochs::TakeOver(const checkpoint::TrainingState& loaded,
                                      const ChiefRecord* record, DirectorState* state) {
  due_ = record != nullptr ? Due(record->validation_due, record->test_due)
                           : Due(loaded.validation_due, loaded.test_due);
  MUSTER_RETURN_IF_ERROR(TakeOverCallbacks(state->work().state(), loaded, record));
  state->recorded().due = due_;
  if (!parts_.callbacks->exist()) return absl::OkStatus();
  state->recorded().callbacks = checkpoint::ToJson(*parts_.callbacks->record());
  open_epochs_ = parts_.callbacks->record()->epochs_begun;
  return absl::OkStatus();
}

// Takes the callbacks' state from `record`, or else from the loaded state. Corrects the due passes,
// because the job may have become longer or shorter.
absl::Status DirectorEpochs::TakeOverCallbacks(const checkpoint::TrainingState& at,
                                               const checkpoint::TrainingState& loaded,
                                               const ChiefRecord* record) {
  std::optional<checkpoint::CallbackRecord> callbacks = loaded.extras.callbacks;
  bool finished = loaded.extras.finished;
  if (record != nullptr) {
    callbacks.reset();
    if (!record->callbacks.is_null()) {
      MUSTER_ASSIGN_OR_RETURN(callbacks, checkpoint::CallbackRecordFromJson(record->callbacks));
    }
    finished = callbacks && !callbacks->stop.empty();
  }
  auto& [validation, test] = due_;
  if (!parts_.callbacks->IsFinished(at) && !finished) {
    test = test && parts_.start->test_every > 0 && at.offset == 0 && at.epoch > 0 &&
           at.epoch % parts_.start->test_every == 0;
    if (at.offset != 0) validation = false;
  }
  validation = validation && parts_.start->validation_examples > 0;
  test = test && parts_.start->test_examples > 0;
  parts_.callbacks->TakeOver(at, std::move(callbacks), finished, due_);
  return absl::OkStatus();
}

void DirectorEpochs::ReportStart() {
  StartReport report;
  checkpoint::TrainingState at;
  {
    DirectorMembers::Lock lock(parts_.members);
    at = lock->work().state();
    report.steps_per_epoch = lock->work().batches_per_epoch();
  }
  report.world_size = report.num_replicas = parts_.options->workers;
  report.global_batch_size = parts_.setup->global_batch_size;
  std::tie(report.validation_due, report.test_due) = due_;
  report.finished = parts_.callbacks->stopping();
  if (parts_.callbacks->exist()) report.weights_of = parts_.callbacks->record()->weights_of;
  parts_.reporter->Start(std::move(report), at, at.offset == 0 || parts_.callbacks->IsFinished(at));
}

// ---- Steps, passes, callbacks

absl::Status DirectorEpochs::ReportSteps(DirectorState::Progress* progress) {
  std::vector<CompletedStep> steps;
  int64_t batches_per_epoch = 0;
  std::map<int, push_pull::TableStatistics> tables;
  {
    DirectorMembers::Lock lock(parts_.members);
    batches_per_epoch = lock->work().batches_per_epoch();
    steps = lock->work().TakeCompleted();
    tables = lock->servers().tables();
    if (progress != nullptr) *progress = lock->progress();
  }
  if (steps.empty()) return absl::OkStatus();
  parts_.reporter->BeginSteps(steps.size());
  absl::Status status;
  for (const CompletedStep& step : steps) {
    parts_.reporter->Step(step, batches_per_epoch, tables);
    due_ = {false, false};
    status.Update(parts_.callbacks->EndStep(step));
    if (step.epoch_end || step.all_done) status.Update(EndEpoch(step, batches_per_epoch));
    parts_.saves->OfferStep(step);
  }
  last_step_ = steps.back();
  return status;
}

absl::Status DirectorEpochs::EndEpoch(const CompletedStep& step, int64_t batches_per_epoch) {
  // Steps of the previous epoch that complete late may count in this epoch.
  if (step.epoch_end && step.epoch_examples == 0 && step.left_out.examples() > 0 &&
      step.step_in_epoch >= batches_per_epoch)
    return DataError(fmt::format(
        "epoch {} had no example to train on: all of its examples are damaged, and on_error "
        "\"skip\" leaves them out",
        step.epoch + 1));
  parts_.reporter->EndEpoch(step);
  const int64_t epochs = step.epoch + 1;
  const bool tested = step.all_done || (step.epoch_end && parts_.start->test_every > 0 &&
                                        epochs % parts_.start->test_every == 0);
  due_ = {parts_.start->validation_examples > 0, parts_.start->test_examples > 0 && tested};
  const int64_t every = parts_.options->job.summary.histograms_every_epochs;
  if (every > 0 && epochs % every == 0 && !parts_.start->observers.empty())
    parts_.saves->WantHistograms();
  return absl::OkStatus();
}

void DirectorEpochs::StartPass() {
  const int split = DueSplit();
  parts_.reporter->BeginPass();
  DirectorMembers::Lock lock(parts_.members);
  lock->work().StartPass(
      split, split == 1 ? parts_.start->validation_examples : parts_.start->test_examples,
      parts_.setup->work.leases.batch);
}

void DirectorEpochs::ReportPass(const WorkTable::PassResult& pass) {
  parts_.reporter->PassProgress(DueSplit(), pass.done, pass.total);
}

absl::Status DirectorEpochs::FinishPass() {
  const int split = DueSplit();
  const checkpoint::TrainingState at = CurrentState();
  const int64_t epoch = at.last_epoch();
  WorkTable::PassResult pass;
  proto::Shown shown;
  {
    DirectorMembers::Lock lock(parts_.members);
    pass = *lock->work().pass();
    shown = lock->work().TakeShownInPass();
    lock->work().CancelPass();
  }
  const std::vector<double>& sums = pass.sums;
  if (sums[1] == 0 && pass.left_out.examples() > 0)
    return DataError(
        fmt::format("all of the {} data is damaged, and on_error \"skip\" leaves that out",
                    kSplitNames[split]));
  auto metrics = parts_.state->Metrics({sums.begin() + 2, sums.end()});
  for (const auto& [name, value] : pass.values) metrics.emplace(name, value.mean());
  if (pass.loss_divisor > 0) metrics["loss"] = sums[0] / pass.loss_divisor;
  MUSTER_RETURN_IF_ERROR(parts_.callbacks->EndPass(split, epoch, at.step, metrics));
  parts_.reporter->EndPass(split, epoch, at.step, pass, shown, metrics);
  // With callbacks, the question comes after they have seen the metrics.
  if (split == 1 && !parts_.callbacks->exist()) parts_.saves->RequestBest(at.step, epoch);
  (split == 1 ? due_.first : due_.second) = false;
  parts_.reporter->ResumeAfterPass();
  return absl::OkStatus();
}

absl::Status DirectorEpochs::BeginCallbacks() {
  const int64_t steps = CurrentState().step;
  if (parts_.callbacks->exist()) {
    ShardState::CallbackParts parts;
    parts.observers = parts_.start->observers;
    parts.checkpoints = parts_.start->checkpoints;
    parts.workers = parts_.options->workers;
    parts.weights_step = parts_.saves->weights_step();
    parts.steps = [this] { return CurrentState().step; };
    // While the cutter is active, only it uses the replica.
    parts.has_weights = [this](int64_t step) { return parts_.saves->HasWeights(step); };
    {
      DirectorMembers::Lock lock(parts_.members);
      parts.steps_per_epoch = lock->work().batches_per_epoch();
    }
    MUSTER_RETURN_IF_ERROR(parts_.callbacks->Begin(parts, steps, parts_.saves->IsSaved(steps)));
  }
  DirectorMembers::Lock lock(parts_.members);
  if (parts_.callbacks->exist()) lock->work().SetRates(parts_.callbacks->record()->rates);
  return absl::OkStatus();
}

absl::Status DirectorEpochs::RunCallbacks(DirectorAction action) {
  const checkpoint::TrainingState at = CurrentState();
  if (action == DirectorAction::kBeginEpoch) {
    MUSTER_RETURN_IF_ERROR(parts_.callbacks->BeginEpoch(at));
  } else if (action == DirectorAction::kEndTraining) {
    MUSTER_RETURN_IF_ERROR(parts_.callbacks->EndTraining(at));
  } else {
    MUSTER_RETURN_IF_ERROR(parts_.callbacks->EndEpoch(at));
    const bool finished = parts_.callbacks->IsFinished(at);
    if (parts_.callbacks->stopping() && !finished) due_.second = parts_.start->test_examples > 0;
    if (parts_.callbacks->Measured() && !finished && !parts_.callbacks->stopping())
      parts_.saves->RequestBest(at.step, at.last_epoch());
  }
  // The servers must store the record before a lease that depends on it is handed out.
  {
    DirectorMembers::Lock lock(parts_.members);
    lock->recorded().callbacks = checkpoint::ToJson(*parts_.callbacks->record());
    lock->work().SetRates(parts_.callbacks->record()->rates);
  }
  MUSTER_RETURN_IF_ERROR(RecordProgress());
  DirectorMembers::Lock lock(parts_.members);
  callbacks_version_ = lock->servers().record_version();
  return absl::OkStatus();
}

// ---- The record

// Observers flush their data before the record includes the steps. Otherwise a restarted chief
// would leave a gap in the summaries. The record therefore covers only the steps reported here,
// even if more have completed since.
absl::Status DirectorEpochs::RecordProgress() {
  DirectorState::Progress progress;
  const absl::Status status = ReportSteps(&progress);
  if (last_step_)
    parts_.reporter->Notify([&](Observer* observer) { observer->OnSave(last_step_->step); });
  last_step_.reset();
  DirectorMembers::Lock lock(parts_.members);
  lock->recorded().due = due_;
  lock->recorded().epoch_start = parts_.reporter->epoch_start();
  // If a record with later changes was made meanwhile, uses the current state, so that this record
  // is not older.
  if (lock->servers().IsRecorded(progress.revision + 1)) progress = lock->progress();
  lock->NewRecord(std::move(progress));
  return status;
}

// ---- State

void DirectorEpochs::Describe(const checkpoint::TrainingState& at,
                              const std::optional<WorkTable::PassResult>& pass,
                              DirectorSituation* now) const {
  const TrainingCallbacks& callbacks = *parts_.callbacks;
  if (pass)
    now->pass = pass->done < pass->total ? DirectorSituation::Pass::kRunning
                                         : DirectorSituation::Pass::kComplete;
  std::tie(now->validation_due, now->test_due) = due_;
  now->save_requested = callbacks.save_requested();
  now->callbacks = callbacks.exist();
  now->callbacks_ended = callbacks.ended();
  now->epoch_ended = callbacks.EpochEnded(at);
  now->epoch_begins = callbacks.EpochBegins(at);
  now->begins_with_weights = callbacks.BeginWithWeights(at.step);
}

std::optional<int64_t> DirectorEpochs::OpenEpochs(const ShardServers& servers) {
  if (!parts_.callbacks->exist()) return std::nullopt;
  if (servers.SomeHaveRecord(callbacks_version_))
    open_epochs_ = parts_.callbacks->record()->epochs_begun;
  return open_epochs_;
}

}  // namespace muster::chief
