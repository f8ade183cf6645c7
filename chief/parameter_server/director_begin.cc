// The start of a job, until its ps tasks are present and the director knows from which state to
// start.
#include <fmt/format.h>

#include "chief/parameter_server/director_impl.h"
#include "common/base/logging.h"
#include "common/job/finished_run.h"
#include "common/push_pull/variable_messages.h"

namespace muster::chief {

absl::Status DirectorImpl::Prepare(const DirectorStart& start) {
  start_ = start;
  const Job& job = options_.job;
  MUSTER_ASSIGN_OR_RETURN(setup_.servers, ParseParameterServer(job.parameter_server));
  MUSTER_ASSIGN_OR_RETURN(state_, factory_(job, start_));
  reporter_ = std::make_unique<TrainingReporter>(job, *state_, start_);
  callbacks_ = std::make_unique<TrainingCallbacks>(job, state_.get(), reporter_.get());
  setup_.built_integers = start_.built_integers.value_or(state_->Integers());
  kept_.unloaded = start_.unloaded;
  kept_.state.epoch_metric_sums.resize(state_->metric_sums());
  if (start_.restore) {
    MUSTER_ASSIGN_OR_RETURN(kept_.state, state_->Restore(*start_.restore));
    start_.restore.reset();  // Frees its memory.
    kept_.files = state_->TakeFiles();
    const auto& callbacks = kept_.state.extras.callbacks;
    saved_ = {kept_.state.step, !callbacks || callbacks->ended};
  }
  MUSTER_RETURN_IF_ERROR(
      SetUpRun(options_, start_, *state_, kept_.state.global_batch_size, &setup_));
  kept_.state.global_batch_size = setup_.global_batch_size;
  return PrepareServers();
}

absl::Status DirectorImpl::PrepareServers() {
  const Job& job = options_.job;
  MUSTER_ASSIGN_OR_RETURN(auto clients, MakeShardClients(options_));
  ServerLinks::Handler* const handler = this;
  auto links = std::make_unique<ServerLinks>(std::move(clients), handler);
  cutter_ = std::make_unique<CheckpointCutter>(setup_.layout, state_.get(), links.get(),
                                               start_.checkpoints, [this] {
                                                 absl::MutexLock lock(&mu_);
                                                 WakeLocked();
                                               });
  rows_ = std::make_unique<ServerRows>(
      setup_.tables, static_cast<int>(options_.servers.size()),
      job.timeouts.heartbeat + job.timeouts.rejoin,
      [this](int shard, bool again) -> absl::StatusOr<ShardClient*> {
        // Callbacks run on the director's thread, so only this thread can restore the shards that
        // they need.
        if (again) MUSTER_RETURN_IF_ERROR(RestoreShards());
        absl::MutexLock lock(&mu_);
        if (again) wake_.WaitFor(&mu_, kTick);
        MUSTER_RETURN_IF_ERROR(failed_);
        const int primary = servers_.placements()[shard].primary;
        if (primary >= 0) return &links_->client(primary);
        return absl::UnavailableError(fmt::format("nobody serves shard {}", shard));
      });
  state_->ServeRows(rows_.get());
  absl::MutexLock lock(&mu_);
  calls_.SetProgram(
      {state_->variables(), setup_.digest, setup_.built_integers, setup_.global_batch_size});
  calls_.SetIntegers(ChangedSince(setup_.built_integers, state_->Integers()));
  servers_.SetCopies(setup_.servers.copies);
  links_ = std::move(links);
  phase_ = DirectorPhase::kAwaitingServers;
  return failed_;
}

// Returns whether training can begin. After a restart of the chief, the present servers may hold
// all shards although a task is missing. The chief then waits for this task no longer than for a
// worker. If a stop was requested, it does not wait at all.
absl::StatusOr<bool> DirectorImpl::ServersReady(MonotonicTime since, std::string* missing) {
  MUSTER_RETURN_IF_ERROR(failed_);
  MUSTER_ASSIGN_OR_RETURN(const std::optional<ChiefRecord> record, servers_.NewestRecord());
  const bool late = Clock::now() >= since + options_.job.timeouts.resume + kReturn;
  if (record && (stop_ || late) && Complete(servers_.PlacementsIn(*record))) return true;
  // An earlier chief may have left a run on servers that have not connected again yet.
  const bool first = options_.term() <= 1;
  if (stop_ && !record && !servers_.SomeAreNew() && first)
    return Preempted("stopped on request before training began");
  if (stop_ && late)
    return Preempted(
        "stopped on request before all servers came back to this chief: nothing was saved");
  for (int task = 0; task < servers_.size(); ++task)
    if (!servers_.IsPresent(task))
      *missing +=
          fmt::format("{}ps {} ({})", missing->empty() ? "" : ", ", task, options_.servers[task]);
  return missing->empty();
}

absl::Status DirectorImpl::AwaitServers() {
  const Duration patience = options_.job.timeouts.join + options_.job.timeouts.rejoin;
  const MonotonicTime start = Clock::now();
  next_line_ = start + kWaitingLine;
  while (true) {
    std::string missing;
    {
      absl::MutexLock lock(&mu_);
      MUSTER_ASSIGN_OR_RETURN(const bool ready, ServersReady(start, &missing));
      if (ready) return absl::OkStatus();
      if (!woken_) wake_.WaitFor(&mu_, kTick);
      woken_ = false;
    }
    LogWaiting(missing);
    if (Clock::now() > start + patience)
      return DeadlinePassed(
          fmt::format("{} did not get ready within {:g} s", missing, Seconds(patience)));
  }
}

// Continues from the record after a restart of the chief. The servers already hold the run's state.
absl::Status DirectorImpl::AdoptLocked(const ChiefRecord& record) {
  if (!kept_.unloaded.ok()) {
    // Workers report only the integer buffers that they changed.
    if (!setup_.built_integers.empty() && !record.integers) return kept_.unloaded;
    LogWarning("{}; the servers hold the run that began with them", Message(kept_.unloaded));
  }
  if (record.integers) {
    IntegerBuffers integers;
    for (const auto& [name, value] : *record.integers) {
      const auto built = setup_.built_integers.find(name);
      if (built != setup_.built_integers.end() && built->second.size() == value.size())
        integers[name] = value;
    }
    calls_.SetIntegers(std::move(integers));
  }
  MUSTER_ASSIGN_OR_RETURN(table_, WorkTable::FromRecord(setup_.work, record.work));
  due_ = {record.validation_due, record.test_due};
  recorded_.epoch_start = Clock::now() - FromSeconds(record.epoch_seconds);
  reporter_->ContinueEpoch(recorded_.epoch_start);
  recorded_.ended = record.ended;
  if (record.ended && !record.ended->empty()) stop_ = true;
  // Workers that have ended have nothing to report.
  const bool tell = !record.ended;
  table_->Reach(servers_.newest_lease());
  // The record's workers may have completed work that the record does not have, even if they have
  // not connected yet. Workers that another process has replaced are lost.
  for (const auto& [index, incarnation] : record.workers)
    if (tell) table_->SetWorker(index, incarnation, /*told=*/true);
  for (const bool again : {true, false})
    for (const auto& [index, member] : workers_)
      if (member.again == again) table_->SetWorker(index, member.incarnation, tell && again);
  await_workers_until_ = Clock::now() + options_.job.timeouts.resume + kReturn;
  recovery_deadline_ = Clock::now() + options_.job.timeouts.rejoin;
  table_->FinishRecovery();
  LogInfo("the servers hold this run's state: going on after step {}, {}", table_->steps(),
          Describe(servers_.PlacementsIn(record)));
  servers_.Adopt(record);
  return absl::OkStatus();
}

// Starts from the servers' record, or else from the loaded state.
absl::Status DirectorImpl::Begin() {
  absl::MutexLock lock(&mu_);
  MUSTER_ASSIGN_OR_RETURN(const std::optional<ChiefRecord> record, servers_.NewestRecord());
  if (record) {
    MUSTER_RETURN_IF_ERROR(AdoptLocked(*record));
  } else {
    table_ = std::make_unique<WorkTable>(setup_.work, kept_.state);
    due_ = {kept_.state.validation_due, kept_.state.test_due};
    servers_reset_ = true;
    for (const auto& [index, member] : workers_) SetWorkerLocked(index, member);
  }
  MUSTER_RETURN_IF_ERROR(failed_);
  weights_step_ = record ? -1 : kept_.state.step;
  MUSTER_RETURN_IF_ERROR(TakeOverCallbacks(table_->state(), record ? &*record : nullptr));
  recorded_.due = due_;
  if (callbacks_->exist()) {
    recorded_.callbacks = checkpoint::ToJson(*callbacks_->record());
    open_epochs_ = callbacks_->record()->epochs_begun;
  }
  UpdateGateLocked();
  NewWorkersLocked();
  for (const auto& [index, member] : workers_) servers_.AddWorker(index);
  if (record) NewViewLocked();
  calls_.Open(table_.get(), &servers_);
  phase_ = DirectorPhase::kStarting;
  return absl::OkStatus();
}

// Takes the callbacks' state from `record`, or else from the loaded state. Corrects the due passes,
// because the job may have become longer or shorter.
absl::Status DirectorImpl::TakeOverCallbacks(const checkpoint::TrainingState& at,
                                             const ChiefRecord* record) {
  std::optional<checkpoint::CallbackRecord> callbacks = kept_.state.extras.callbacks;
  bool finished = kept_.state.extras.finished;
  if (record != nullptr) {
    callbacks.reset();
    if (!record->callbacks.is_null()) {
      MUSTER_ASSIGN_OR_RETURN(callbacks, checkpoint::CallbackRecordFromJson(record->callbacks));
    }
    finished = callbacks && !callbacks->stop.empty();
  }
  auto& [validation, test] = due_;
  if (!IsFinished(at) && !finished) {
    test = test && start_.test_every > 0 && at.offset == 0 && at.epoch > 0 &&
           at.epoch % start_.test_every == 0;
    if (at.offset != 0) validation = false;
  }
  validation = validation && start_.validation_examples > 0;
  test = test && start_.test_examples > 0;
  callbacks_->TakeOver(at, std::move(callbacks), finished, due_);
  return absl::OkStatus();
}

void DirectorImpl::ReportStart() {
  StartReport report;
  checkpoint::TrainingState at;
  {
    absl::MutexLock lock(&mu_);
    at = table_->state();
    report.steps_per_epoch = table_->batches_per_epoch();
  }
  report.world_size = report.num_replicas = options_.workers;
  report.global_batch_size = setup_.global_batch_size;
  std::tie(report.validation_due, report.test_due) = due_;
  report.finished = callbacks_->stopping();
  if (callbacks_->exist()) report.weights_of = callbacks_->record()->weights_of;
  reporter_->Start(std::move(report), at, at.offset == 0 || IsFinished(at));
}

}  // namespace muster::chief
