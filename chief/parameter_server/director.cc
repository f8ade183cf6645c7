// The director's thread.
#include "chief/parameter_server/director.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chief/parameter_server/director_impl.h"
#include "common/base/logging.h"
#include "common/job/finished_run.h"

namespace muster::chief {
namespace {

constexpr Duration kRecord = std::chrono::seconds(1);
// Timeout for a ps task to store the last record.
constexpr Duration kLastRecord = std::chrono::seconds(10);

}  // namespace

DirectorImpl::DirectorImpl(DirectorOptions options, ShardStateFactory factory)
    : options_(std::move(options)),
      factory_(std::move(factory)),
      members_(std::make_unique<DirectorMembers>(options_)) {}

DirectorImpl::~DirectorImpl() { members_->StopLinks(); }

std::unique_ptr<Director> MakeDirector(DirectorOptions options, ShardStateFactory factory) {
  return std::make_unique<DirectorImpl>(std::move(options), std::move(factory));
}

Json ToJson(const DirectorRecord& record) {
  Json workers = Json::object();
  for (const auto& [worker, staleness] : record.staleness)
    workers[std::to_string(worker)] = {{"max", staleness.max}, {"mean", staleness.mean}};
  return {{"updates", record.updates},
          {"repeated_examples", record.repeated},
          {"torn_pushes", record.torn},
          {"lost_updates", record.lost_updates},
          {"refused_pushes", record.refused},
          {"staleness",
           {{"max", record.staleness_max},
            {"mean", record.staleness_mean},
            {"workers", std::move(workers)}}}};
}

// ---- State of the thread

bool DirectorImpl::IsFinished(const checkpoint::TrainingState& at) const {
  return TrainedToItsEnd(options_.job, at.step, at.epoch);
}

checkpoint::TrainingState DirectorImpl::state() const {
  DirectorMembers::Lock lock(members_.get());
  return lock->work().state();
}

DirectorSituation DirectorImpl::Look() {
  DirectorSituation now;
  checkpoint::TrainingState at;
  std::optional<WorkTable::PassResult> pass;
  {
    DirectorMembers::Lock lock(members_.get());
    // Before a cut, nothing may be leased between this check of open leases and the copy.
    if (LeaseTable::Gate gate = lock->work().gate(); IsClosed(*lock)) {
      gate.closed = true;
      lock->work().set_gate(gate);
    }
    at = lock->work().state();
    now.stop = lock->stop_requested();
    now.finished = lock->work().all_done() || callbacks_->stopping();
    now.quiet = lock->quiet();
    pass = lock->work().pass();
  }
  now.phase = phase_;
  saves_->Describe(at.step, now.stop, &now);
  now.save_requested = callbacks_->save_requested();
  if (pass)
    now.pass = pass->done < pass->total ? DirectorSituation::Pass::kRunning
                                        : DirectorSituation::Pass::kComplete;
  std::tie(now.validation_due, now.test_due) = due_;
  now.callbacks = callbacks_->exist();
  now.callbacks_ended = callbacks_->ended();
  now.epoch_ended = callbacks_->EpochEnded(at);
  now.epoch_begins = callbacks_->EpochBegins(at);
  now.begins_with_weights = callbacks_->BeginWithWeights(at.step);
  if (pass && !now.stop) reporter_->PassProgress(due_.first ? 1 : 2, pass->done, pass->total);
  return now;
}

bool DirectorImpl::IsClosed(const DirectorState& state) const {
  const bool begun = phase_ == DirectorPhase::kTraining;
  return state.stop_requested() || saves_->HoldLeases() || (callbacks_->exist() && !begun);
}

void DirectorImpl::UpdateGate(DirectorState& state) {
  GateSituation now;
  now.before = state.work().gate();
  now.closed = IsClosed(state);
  now.steps_to_report = state.work().has_completed();
  now.reported =
      state.work().between_steps() && !now.steps_to_report && !due_.first && !due_.second;
  const checkpoint::TrainingState at = state.work().state();
  now.epoch = at.epoch;
  now.step = at.step;
  if (start_.checkpoints != nullptr) now.every_steps = options_.job.checkpoint.every_steps;
  if (callbacks_->exist()) {
    if (state.servers().SomeHaveRecord(callbacks_version_))
      open_epochs_ = callbacks_->record()->epochs_begun;
    now.open_epochs = open_epochs_;
  }
  state.work().set_gate(DecideGate(now));
}

// ---- Directing

absl::Status DirectorImpl::Run(const DirectorStart& start) {
  absl::Status status = Prepare(start);
  if (status.ok()) {
    members_->links()->Start(MakeCreateRequest(options_, *state_, setup_));
    status = AwaitServers();
  }
  if (status.ok()) status = Begin();
  if (status.ok()) status = rollback_->RestoreShards();
  if (status.ok()) ReportStart();
  MonotonicTime next_record = Clock::now();
  while (status.ok()) {
    auto turn = RunOnce();
    status = turn.status();
    if (!turn.ok() || *turn) break;
    if (!RecordIsDue(next_record)) continue;
    next_record = Clock::now() + kRecord;
    status = RecordProgress();
  }
  return End(status);
}

// Waits for an event, then acts until there is nothing to do. Returns true once everything is done
// and saved.
absl::StatusOr<bool> DirectorImpl::RunOnce() {
  {
    DirectorMembers::Lock lock(members_.get());
    lock.AwaitEvent();
    if (!lock->failed().ok()) return lock->failed();
    lock->GiveUpAbsent();
    if (const std::string silent = lock->GiveUpSilent(); !silent.empty())
      waiting_.Log(fmt::format("{} to tell what was done before this chief was there", silent));
    lock.AnswerHeld();
  }
  while (true) {
    if (phase_ == DirectorPhase::kTraining) MUSTER_RETURN_IF_ERROR(ReportSteps());
    MUSTER_RETURN_IF_ERROR(saves_->Take());
    MUSTER_RETURN_IF_ERROR(rollback_->RestoreShards());
    const DirectorDecision decision = Decide(Look());
    if (decision.action == DirectorAction::kFinish) return true;
    MUSTER_ASSIGN_OR_RETURN(const bool again, Act(decision));
    if (again) continue;
    DirectorMembers::Lock lock(members_.get());
    UpdateGate(*lock);
    lock.AnswerHeld();
    return false;
  }
}

// Returns true if the action may have changed the situation.
absl::StatusOr<bool> DirectorImpl::Act(const DirectorDecision& decision) {
  switch (decision.action) {
    case DirectorAction::kWait: {
      if (!decision.waits_to_cut) return false;
      saves_->Postpone(decision.checkpoint);
      DirectorMembers::Lock lock(members_.get());
      waiting_.Log(fmt::format("{} before the state is saved", lock->work().OutstandingWorkers()));
      return false;
    }
    case DirectorAction::kBeginCallbacks:
      MUSTER_RETURN_IF_ERROR(BeginCallbacks());
      return true;
    case DirectorAction::kEndEpoch:
    case DirectorAction::kEndTraining:
    case DirectorAction::kBeginEpoch:
      MUSTER_RETURN_IF_ERROR(RunCallbacks(decision.action));
      return true;
    case DirectorAction::kWantWeights:
      saves_->WantWeights();
      return true;
    case DirectorAction::kRequestBest:
      saves_->TakeBest();
      return true;
    case DirectorAction::kRequestSave:
      saves_->TakeRequest();
      return true;
    case DirectorAction::kCut:
      MUSTER_RETURN_IF_ERROR(saves_->Begin(decision.checkpoint, due_));
      return false;
    case DirectorAction::kCancelPass: {
      DirectorMembers::Lock lock(members_.get());
      lock->work().CancelPass();
      return true;
    }
    case DirectorAction::kStartPass:
      StartPass();
      return true;
    case DirectorAction::kFinishPass:
      MUSTER_RETURN_IF_ERROR(FinishPass());
      return true;
    case DirectorAction::kStop:
      return Preempted(fmt::format("stopped on request after step {}", state().step));
    case DirectorAction::kFinish:
      return false;
  }
  return false;
}

// ---- Steps, passes, callbacks

absl::Status DirectorImpl::ReportSteps(DirectorState::Progress* progress) {
  std::vector<CompletedStep> steps;
  int64_t batches_per_epoch = 0;
  std::map<int, TableStatistics> tables;
  {
    DirectorMembers::Lock lock(members_.get());
    batches_per_epoch = lock->work().batches_per_epoch();
    steps = lock->work().TakeCompleted();
    tables = lock->servers().tables();
    if (progress != nullptr) *progress = lock->progress();
  }
  if (steps.empty()) return absl::OkStatus();
  reporter_->BeginSteps(steps.size());
  absl::Status status;
  for (const CompletedStep& step : steps) {
    reporter_->Step(step, batches_per_epoch, tables);
    due_ = {false, false};
    status.Update(callbacks_->EndStep(step));
    if (step.epoch_end || step.all_done) status.Update(EndOfEpoch(step, batches_per_epoch));
    saves_->OfferStep(step);
  }
  last_step_ = steps.back();
  return status;
}

absl::Status DirectorImpl::EndOfEpoch(const CompletedStep& step, int64_t batches_per_epoch) {
  // Steps of the previous epoch that complete late may count in this epoch.
  if (step.epoch_end && step.epoch_examples == 0 && step.left_out.examples() > 0 &&
      step.step_in_epoch >= batches_per_epoch)
    return DataError(fmt::format(
        "epoch {} had no example to train on: all of its examples are damaged, and on_error "
        "\"skip\" leaves them out",
        step.epoch + 1));
  reporter_->EndEpoch(step);
  const int64_t epochs = step.epoch + 1;
  const bool tested =
      step.all_done || (step.epoch_end && start_.test_every > 0 && epochs % start_.test_every == 0);
  due_ = {start_.validation_examples > 0, start_.test_examples > 0 && tested};
  const int64_t every = options_.job.summary.histograms_every_epochs;
  if (every > 0 && epochs % every == 0 && !start_.observers.empty()) saves_->WantHistograms();
  return absl::OkStatus();
}

void DirectorImpl::StartPass() {
  const int split = due_.first ? 1 : 2;
  reporter_->BeginPass();
  DirectorMembers::Lock lock(members_.get());
  lock->work().StartPass(split, split == 1 ? start_.validation_examples : start_.test_examples,
                         setup_.work.leases.batch);
}

absl::Status DirectorImpl::FinishPass() {
  const int split = due_.first ? 1 : 2;
  const checkpoint::TrainingState at = state();
  const int64_t epoch = LastEpoch(at);
  WorkTable::PassResult pass;
  proto::Shown shown;
  {
    DirectorMembers::Lock lock(members_.get());
    pass = *lock->work().pass();
    shown = lock->work().TakeShownInPass();
    lock->work().CancelPass();
  }
  const std::vector<double>& sums = pass.sums;
  if (sums[1] == 0 && pass.left_out.examples() > 0)
    return DataError(
        fmt::format("all of the {} data is damaged, and on_error \"skip\" leaves that out",
                    kSplitNames[split]));
  auto metrics = state_->Metrics({sums.begin() + 2, sums.end()});
  for (const auto& [name, value] : pass.values) metrics.emplace(name, value.mean());
  if (pass.loss_divisor > 0) metrics["loss"] = sums[0] / pass.loss_divisor;
  MUSTER_RETURN_IF_ERROR(callbacks_->EndPass(split, epoch, at.step, metrics));
  reporter_->EndPass(split, epoch, at.step, pass, shown, metrics);
  // With callbacks, the question comes after they have seen the metrics.
  if (split == 1 && !callbacks_->exist()) saves_->RequestBest(at.step, epoch);
  (split == 1 ? due_.first : due_.second) = false;
  reporter_->ResumeAfterPass();
  return absl::OkStatus();
}

absl::Status DirectorImpl::BeginCallbacks() {
  const int64_t steps = state().step;
  if (callbacks_->exist()) {
    ShardState::CallbackParts parts;
    parts.observers = start_.observers;
    parts.checkpoints = start_.checkpoints;
    parts.workers = options_.workers;
    parts.weights_step = saves_->weights_step();
    parts.steps = [this] { return state().step; };
    // While the cutter is active, only it uses the replica.
    parts.has_weights = [this](int64_t step) { return saves_->HasWeights(step); };
    {
      DirectorMembers::Lock lock(members_.get());
      parts.steps_per_epoch = lock->work().batches_per_epoch();
    }
    MUSTER_RETURN_IF_ERROR(callbacks_->Begin(parts, steps, saves_->IsSaved(steps)));
  }
  DirectorMembers::Lock lock(members_.get());
  if (callbacks_->exist()) lock->work().SetRates(callbacks_->record()->rates);
  phase_ = DirectorPhase::kTraining;
  return absl::OkStatus();
}

absl::Status DirectorImpl::RunCallbacks(DirectorAction action) {
  const checkpoint::TrainingState at = state();
  if (action == DirectorAction::kBeginEpoch) {
    MUSTER_RETURN_IF_ERROR(callbacks_->BeginEpoch(at));
  } else if (action == DirectorAction::kEndTraining) {
    MUSTER_RETURN_IF_ERROR(callbacks_->EndTraining(at));
  } else {
    MUSTER_RETURN_IF_ERROR(callbacks_->EndEpoch(at));
    const bool finished = IsFinished(at);
    if (callbacks_->stopping() && !finished) due_.second = start_.test_examples > 0;
    if (callbacks_->Measured() && !finished && !callbacks_->stopping())
      saves_->RequestBest(at.step, LastEpoch(at));
  }
  // The servers must store the record before a lease that depends on it is handed out.
  {
    DirectorMembers::Lock lock(members_.get());
    lock->recorded().callbacks = checkpoint::ToJson(*callbacks_->record());
    lock->work().SetRates(callbacks_->record()->rates);
  }
  MUSTER_RETURN_IF_ERROR(RecordProgress());
  DirectorMembers::Lock lock(members_.get());
  callbacks_version_ = lock->servers().record_version();
  return absl::OkStatus();
}

// ---- The record and the end

// Returns whether to make a record now: at `next`, or at once if changes keep leases from being
// handed out.
bool DirectorImpl::RecordIsDue(MonotonicTime next) {
  DirectorMembers::Lock lock(members_.get());
  return phase_ == DirectorPhase::kTraining &&
         (Clock::now() >= next || !lock->servers().IsRecorded(lock->work().revision()));
}

// Observers flush their data before the record includes the steps. Otherwise a restarted chief
// would leave a gap in the summaries. The record therefore covers only the steps reported here,
// even if more have completed since.
absl::Status DirectorImpl::RecordProgress() {
  DirectorState::Progress progress;
  const absl::Status status = ReportSteps(&progress);
  if (last_step_)
    reporter_->Notify([&](Observer* observer) { observer->OnSave(last_step_->step); });
  last_step_.reset();
  DirectorMembers::Lock lock(members_.get());
  lock->recorded().due = due_;
  lock->recorded().epoch_start = reporter_->epoch_start();
  // If a record with later changes was made meanwhile, uses the current state, so that this record
  // is not older.
  if (lock->servers().IsRecorded(progress.revision + 1)) progress = lock->progress();
  lock->NewRecord(std::move(progress));
  return status;
}

// Stores a record of the end on the servers. Workers that know of the end ask for no more work.
// Without this record, a later chief would wait for their reports.
void DirectorImpl::RecordEnd(const absl::Status& outcome) {
  {
    DirectorMembers::Lock lock(members_.get());
    lock->recorded().ended = outcome.ok() ? "" : std::string(Message(outcome));
  }
  (void)RecordProgress();
  const MonotonicTime deadline = Clock::now() + kLastRecord;
  DirectorMembers::Lock lock(members_.get());
  const uint64_t version = lock->servers().record_version();
  while (lock->failed().ok() && Clock::now() < deadline && !lock->servers().present().empty()) {
    // In the reply to the last record, each server reports the final statistics of its tables.
    if (setup_.tables.empty() ? lock->servers().SomeHaveRecord(version)
                              : lock->servers().AllHaveRecord(version))
      return;
    lock.AwaitChange();
  }
}

absl::Status DirectorImpl::End(const absl::Status& outcome) {
  absl::Status status = outcome;
  const auto good = [&] { return status.ok() || ExitCodeOf(status) == ExitCode::kPreempted; };
  if (!good()) {
    DirectorMembers::Lock lock(members_.get());
    lock->CancelCalls();  // The replies of these calls are not needed.
  }
  if (saves_ != nullptr) saves_->Drop();
  if (good() && start_.checkpoints != nullptr)
    if (const absl::Status saved = start_.checkpoints->Drain(); !saved.ok())
      status = StatusFor(ExitCode::kRetryable,
                         fmt::format("the state after step {} could not be saved: {}",
                                     rollback_->state().step, Message(saved)));
  if (good() && phase_ >= DirectorPhase::kStarting) {
    phase_ = DirectorPhase::kEnding;
    RecordEnd(status);
    const std::map<int, TableStatistics> tables =
        DirectorMembers::Lock(members_.get())->servers().tables();
    if (!setup_.tables.empty()) reporter_->Tables(rollback_->state().step, tables);
  }
  members_->StopLinks();
  DirectorMembers::Lock lock(members_.get());
  phase_ = good() ? DirectorPhase::kDone : DirectorPhase::kFailed;
  if (lock->has_begun() && good()) lock->work().SetDone();
  if (!good()) lock->calls().Close();
  lock.AnswerHeld();
  return status;
}

}  // namespace muster::chief
