// The start of a job, until its ps tasks are present and the director knows from which state to
// start.
#include <fmt/format.h>

#include "chief/parameter_server/director/director_impl.h"
#include "common/base/logging.h"
#include "common/push_pull/variable_messages.h"

namespace muster::chief {

absl::Status DirectorImpl::Prepare(const DirectorStart& start) {
  start_ = start;
  const Job& job = options_.job;
  MUSTER_ASSIGN_OR_RETURN(setup_.servers, push_pull::ParseParameterServer(job.parameter_server));
  MUSTER_ASSIGN_OR_RETURN(state_, factory_(job, start_));
  reporter_ = std::make_unique<TrainingReporter>(job, *state_, start_);
  callbacks_ = std::make_unique<TrainingCallbacks>(job, state_.get(), reporter_.get());
  setup_.built_integers = start_.built_integers.value_or(state_->Integers());
  ShardRollback::Kept kept;
  kept.unloaded = start_.unloaded;
  kept.state.epoch_metric_sums.resize(state_->metric_sums());
  const bool restored = start_.restore.has_value();
  if (restored) {
    MUSTER_ASSIGN_OR_RETURN(kept.state, state_->Restore(*start_.restore));
    start_.restore.reset();  // Frees its memory.
    kept.files = state_->TakeFiles();
  }
  MUSTER_RETURN_IF_ERROR(
      SetUpRun(options_, start_, *state_, kept.state.global_batch_size, &setup_));
  kept.state.global_batch_size = setup_.global_batch_size;
  rollback_ =
      std::make_unique<ShardRollback>(setup_, state_.get(), members_.get(), std::move(kept));
  MUSTER_RETURN_IF_ERROR(PrepareServers());
  if (!restored) return absl::OkStatus();
  const auto& callbacks = rollback_->state().extras.callbacks;
  saves_->SetSaved(rollback_->state().step, !callbacks || callbacks->ended);
  return absl::OkStatus();
}

absl::Status DirectorImpl::PrepareServers() {
  MUSTER_ASSIGN_OR_RETURN(auto clients, MakeShardClients(options_));
  members_->Prepare(
      std::move(clients),
      {state_->variables(), setup_.digest, setup_.built_integers, setup_.global_batch_size},
      push_pull::ChangedSince(setup_.built_integers, state_->Integers()), setup_.servers.copies);
  saves_ = std::make_unique<DirectorSaves>(DirectorSaves::Parts{.job = &options_.job,
                                                                .setup = &setup_,
                                                                .state = state_.get(),
                                                                .sink = start_.checkpoints,
                                                                .members = members_.get(),
                                                                .rollback = rollback_.get(),
                                                                .reporter = reporter_.get(),
                                                                .callbacks = callbacks_.get(),
                                                                .waiting = &waiting_});
  epochs_ = std::make_unique<DirectorEpochs>(DirectorEpochs::Parts{.options = &options_,
                                                                   .start = &start_,
                                                                   .setup = &setup_,
                                                                   .state = state_.get(),
                                                                   .members = members_.get(),
                                                                   .saves = saves_.get(),
                                                                   .reporter = reporter_.get(),
                                                                   .callbacks = callbacks_.get()});
  const Timeouts& timeouts = options_.job.timeouts;
  rows_ = std::make_unique<ServerRows>(
      setup_.tables, static_cast<int>(options_.servers.size()),
      timeouts.heartbeat + timeouts.rejoin,
      [this](int shard, bool again) { return PrimaryOf(shard, again); });
  state_->ServeRows(rows_.get());
  phase_ = DirectorPhase::kAwaitingServers;
  return DirectorMembers::Lock(members_.get())->failed();
}

// Callbacks run on the director's thread, so only this thread can restore the shards that they
// need.
absl::StatusOr<ShardClient*> DirectorImpl::PrimaryOf(int shard, bool again) {
  if (again) MUSTER_RETURN_IF_ERROR(rollback_->RestoreShards());
  DirectorMembers::Lock lock(members_.get());
  if (again) lock.AwaitChange();
  MUSTER_RETURN_IF_ERROR(lock->failed());
  const int primary = lock->servers().placements()[shard].primary;
  if (primary >= 0) return &members_->links()->client(primary);
  return absl::UnavailableError(fmt::format("nobody serves shard {}", shard));
}

absl::Status DirectorImpl::AwaitServers() {
  const Duration patience = options_.job.timeouts.join + options_.job.timeouts.rejoin;
  const MonotonicTime start = Clock::now();
  waiting_.Pause();
  while (true) {
    std::string missing;
    {
      DirectorMembers::Lock lock(members_.get());
      MUSTER_ASSIGN_OR_RETURN(const bool ready, lock->ServersReady(start, &missing));
      if (ready) return absl::OkStatus();
      lock.AwaitEvent();
    }
    waiting_.Log(missing);
    if (Clock::now() > start + patience)
      return DeadlinePassed(
          fmt::format("{} did not get ready within {:g} s", missing, Seconds(patience)));
  }
}

// Returns the error of loading weights if the servers do not hold the run that began with them.
absl::Status DirectorImpl::CheckLoaded(const ChiefRecord& record) const {
  const absl::Status& unloaded = rollback_->unloaded();
  if (unloaded.ok()) return unloaded;
  // Workers report only the integer buffers that they changed.
  if (!setup_.built_integers.empty() && !record.integers) return unloaded;
  LogWarning("{}; this has no effect, because the servers hold the state of the run",
             Message(unloaded));
  return absl::OkStatus();
}

// Starts from the servers' record, or else from the loaded state.
absl::Status DirectorImpl::Begin() {
  DirectorMembers::Lock lock(members_.get());
  MUSTER_ASSIGN_OR_RETURN(const std::optional<ChiefRecord> record, lock->servers().NewestRecord());
  const checkpoint::TrainingState& loaded = rollback_->state();
  if (record) {
    MUSTER_RETURN_IF_ERROR(CheckLoaded(*record));
    MUSTER_RETURN_IF_ERROR(lock->Adopt(*record, setup_.work, setup_.built_integers));
    reporter_->ContinueEpoch(lock->recorded().epoch_start);
  } else {
    lock->Begin(setup_.work, loaded);
  }
  MUSTER_RETURN_IF_ERROR(lock->failed());
  saves_->SetWeightsStep(record ? -1 : loaded.step);
  MUSTER_RETURN_IF_ERROR(epochs_->TakeOver(loaded, record ? &*record : nullptr, &*lock));
  UpdateGate(*lock);
  lock->Open(/*adopted=*/record.has_value());
  phase_ = DirectorPhase::kStarting;
  return absl::OkStatus();
}

}  // namespace muster::chief
