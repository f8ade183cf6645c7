// The director's thread.
#include "chief/parameter_server/director/director.h"

#include <fmt/format.h>

#include <utility>

#include "chief/parameter_server/director/director_impl.h"

namespace muster::chief {
namespace {

constexpr Duration kRecord = std::chrono::seconds(1);
constexpr Duration kCounters = std::chrono::seconds(1);  // Between two calls of on_counters.
// Timeout for a ps task to store the last record.
constexpr Duration kLastRecord = std::chrono::seconds(10);

}  // namespace

DirectorImpl::DirectorImpl(DirectorOptions options, ShardStateFactory factory)
    : options_(std::move(options)),
      factory_(std::move(factory)),
      members_(std::make_unique<DirectorMembers>(options_)) {}

// Cancels the calls of a cut in progress, which ~DirectorSaves waits for.
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

// ---- Directing

absl::Status DirectorImpl::Run(const DirectorStart& start) {
  absl::Status status = Prepare(start);
  if (status.ok()) {
    members_->links()->Start(MakeCreateRequest(options_, *state_, setup_));
    status = AwaitServers();
  }
  if (status.ok()) status = Begin();
  if (status.ok()) status = rollback_->RestoreShards();
  if (status.ok()) epochs_->ReportStart();
  const bool begun = status.ok();
  MonotonicTime next_record = Clock::now(), next_counters = next_record;
  while (status.ok()) {
    auto turn = RunOnce();
    if (options_.on_counters && Clock::now() >= next_counters) {
      next_counters = Clock::now() + kCounters;
      options_.on_counters(record());
    }
    status = turn.status();
    if (!turn.ok() || *turn) break;
    if (!RecordIsDue(next_record)) continue;
    next_record = Clock::now() + kRecord;
    status = epochs_->RecordProgress();
  }
  // Before the servers were restored, the counters of an earlier chief are not known.
  if (options_.on_counters && begun) options_.on_counters(record());
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
    if (phase_ == DirectorPhase::kTraining) MUSTER_RETURN_IF_ERROR(epochs_->ReportSteps());
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
  if (now.stop) saves_->DropBest();  // The current state is saved anyway.
  saves_->Describe(at.step, &now);
  epochs_->Describe(at, pass, &now);
  if (pass && !now.stop) epochs_->ReportPass(*pass);
  return now;
}

bool DirectorImpl::IsClosed(const DirectorState& state) const {
  const bool begun = phase_ == DirectorPhase::kTraining;
  return state.stop_requested() || saves_->HoldsLeases() || (callbacks_->exist() && !begun);
}

void DirectorImpl::UpdateGate(DirectorState& state) {
  GateSituation now;
  now.before = state.work().gate();
  now.closed = IsClosed(state);
  now.steps_to_report = state.work().has_completed();
  now.reported = state.work().between_steps() && !now.steps_to_report &&
                 epochs_->due() == DirectorEpochs::Due(false, false);
  const checkpoint::TrainingState at = state.work().state();
  now.epoch = at.epoch;
  now.step = at.step;
  if (start_.checkpoints != nullptr) now.every_steps = options_.job.checkpoint.every_steps;
  now.open_epochs = epochs_->OpenEpochs(state.servers());
  state.work().set_gate(DecideGate(now));
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
      MUSTER_RETURN_IF_ERROR(epochs_->BeginCallbacks());
      phase_ = DirectorPhase::kTraining;
      return true;
    case DirectorAction::kEndEpoch:
    case DirectorAction::kEndTraining:
    case DirectorAction::kBeginEpoch:
      MUSTER_RETURN_IF_ERROR(epochs_->RunCallbacks(decision.action));
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
      MUSTER_RETURN_IF_ERROR(saves_->Begin(decision.checkpoint, epochs_->due()));
      return false;
    case DirectorAction::kCancelPass: {
      DirectorMembers::Lock lock(members_.get());
      lock->work().CancelPass();
      return true;
    }
    case DirectorAction::kStartPass:
      epochs_->StartPass();
      return true;
    case DirectorAction::kFinishPass:
      MUSTER_RETURN_IF_ERROR(epochs_->FinishPass());
      return true;
    case DirectorAction::kStop: {
      DirectorMembers::Lock lock(members_.get());
      return Preempted(fmt::format("stopped on request after step {}", lock->work().state().step));
    }
    case DirectorAction::kFinish:
      return false;
  }
  return false;
}

// ---- The record and the end

// Returns whether to make a record now: at `next`, or at once if changes keep leases from being
// handed out.
bool DirectorImpl::RecordIsDue(MonotonicTime next) {
  DirectorMembers::Lock lock(members_.get());
  return phase_ == DirectorPhase::kTraining &&
         (Clock::now() >= next || !lock->servers().IsRecorded(lock->work().revision()));
}

// Stores a record of the end on the servers. Workers that know of the end ask for no more work.
// Without this record, a later chief would wait for their reports.
void DirectorImpl::RecordEnd(const absl::Status& outcome) {
  {
    DirectorMembers::Lock lock(members_.get());
    lock->recorded().ended = outcome.ok() ? "" : std::string(Message(outcome));
  }
  (void)epochs_->RecordProgress();
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
  // Prepare may have failed before there was a state.
  const int64_t saved_step = rollback_ != nullptr ? rollback_->state().step : 0;
  if (good() && start_.checkpoints != nullptr)
    if (const absl::Status saved = start_.checkpoints->Drain(); !saved.ok())
      status = StatusFor(ExitCode::kRetryable,
                         fmt::format("the state after step {} could not be saved: {}", saved_step,
                                     Message(saved)));
  if (good() && phase_ >= DirectorPhase::kStarting) {
    phase_ = DirectorPhase::kEnding;
    RecordEnd(status);
    const std::map<int, push_pull::TableStatistics> tables =
        DirectorMembers::Lock(members_.get())->servers().tables();
    if (!setup_.tables.empty()) reporter_->Tables(saved_step, tables);
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
