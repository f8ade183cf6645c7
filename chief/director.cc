// The thread that directs: when what is due.
#include "chief/director.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "chief/director_impl.h"
#include "common/base/logging.h"

namespace muster {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
constexpr Duration kRecord = std::chrono::seconds(1);
constexpr Duration kWaitingLine = std::chrono::seconds(10);
// How long after timeouts.resume a worker may take to find a chief that was restarted.
constexpr Duration kReturn = std::chrono::seconds(4);
// Until a ps keeps the record that all is done.
constexpr Duration kLastRecord = std::chrono::seconds(10);

}  // namespace

DirectorImpl::DirectorImpl(DirectorOptions options, ShardStateFactory factory)
    : options_(std::move(options)), factory_(std::move(factory)) {
  absl::MutexLock lock(&mu_);
  for (size_t task = 0; task < options_.servers.size(); ++task)
    servers_.push_back(std::make_unique<Server>());
  placements_.resize(servers_.size());
}

DirectorImpl::~DirectorImpl() {
  StopLinks();
  if (saver_.joinable()) saver_.join();
}

std::unique_ptr<Director> MakeDirector(DirectorOptions options, ShardStateFactory factory) {
  return std::make_unique<DirectorImpl>(std::move(options), std::move(factory));
}

// ---- From outside

void DirectorImpl::RequestStop() {
  absl::MutexLock lock(&mu_);
  stop_ = true;
  WakeLocked();
}

void DirectorImpl::Abort(const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  FailLocked(why);
  for (const auto& server : servers_)
    if (server->client != nullptr) server->client->Cancel();
}

DirectorRecord DirectorImpl::record() const {
  DirectorRecord record;
  absl::MutexLock lock(&mu_);
  if (table_ == nullptr) return record;
  record.torn = lost_pushes_.torn(table_->told());
  record.updates = table_->steps();
  record.lost_updates = table_->ledger().lost();
  record.refused = table_->refused_pushes();
  record.repeated = table_->repeated_examples();
  StalenessRecord all;
  for (const auto& [worker, staleness] : table_->staleness()) {
    record.staleness[worker] = {staleness.max, staleness.mean()};
    all.max = std::max(all.max, staleness.max);
    all.pushes += staleness.pushes;
    all.sum += staleness.sum;
  }
  record.staleness_max = all.max;
  record.staleness_mean = all.mean();
  return record;
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

// ---- The beginning

absl::Status DirectorImpl::Prepare(const DirectorStart& start) {
  start_ = start;
  const Job& job = options_.job;
  MUSTER_ASSIGN_OR_RETURN(server_options_, ParseParameterServer(job.parameter_server));
  MUSTER_ASSIGN_OR_RETURN(state_, factory_(job, start_));
  unloaded_ = start_.unloaded;
  built_integers_ = start_.built_integers.value_or(state_->Integers());
  kept_state_ = checkpoint::TrainingState();
  kept_state_.epoch_metric_sums.resize(state_->metric_sums());
  if (start_.restore) {
    MUSTER_ASSIGN_OR_RETURN(kept_state_, state_->Restore(*start_.restore));
    start_.restore.reset();  // its memory
    const auto& callbacks = kept_state_.extras.callbacks;
    saved_ = {kept_state_.step, !callbacks || callbacks->ended};
  }
  if (!job.global_batch_size && !job.per_replica_batch_size)
    return ConfigurationError(
        "the job names no batch size: set \"global_batch_size\" or \"per_replica_batch_size\"");
  global_batch_size_ = kept_state_.global_batch_size;
  if (global_batch_size_ == 0)
    global_batch_size_ =
        job.global_batch_size.value_or(job.per_replica_batch_size.value_or(0) * options_.workers);
  kept_state_.global_batch_size = global_batch_size_;
  LeaseTable::Options& leases = table_options_.leases;
  leases.examples = state_->EpochExamples(start_.train_examples, global_batch_size_);
  if (leases.examples <= 0)
    return ConfigurationError(
        fmt::format("the train dataset has {} examples, fewer than the global batch of {}, and "
                    "drop_remainder drops them",
                    start_.train_examples, global_batch_size_));
  leases.batch = (global_batch_size_ + options_.workers - 1) / options_.workers;
  leases.epochs = job.epochs.value_or(job.max_steps ? std::numeric_limits<int32_t>::max() : 1);
  leases.max_steps = job.max_steps;
  table_options_.max_staleness = server_options_.max_staleness;
  table_options_.workers = options_.workers;
  const int servers = static_cast<int>(options_.servers.size());
  table_options_.shards = servers;
  table_options_.summary_every_steps = start_.observers.empty() ? 0 : job.summary.every_steps;
  table_options_.metric_sums = state_->metric_sums();
  const LayoutOptions layout{servers, server_options_.partitioner, server_options_.chunk_bytes};
  layout_ = MakeLayout(state_->variables(), layout);
  digest_ = DigestOf(state_->variables(), layout);
  kept_ = state_->Encode(layout_, kept_state_.step);
  tables_ = state_->tables();
  kept_rows_ = state_->Rows();
  rows_ = std::make_unique<ServerRows>(
      tables_, servers, job.timeouts.heartbeat + kReturn,
      [this](int shard, bool again) -> absl::StatusOr<ShardClient*> {
        absl::MutexLock lock(&mu_);
        if (again) wake_.WaitFor(&mu_, kTick);
        MUSTER_RETURN_IF_ERROR(failed_);
        const int primary = placements_[shard].primary;
        if (primary >= 0) return servers_[primary]->client.get();
        return absl::UnavailableError(fmt::format("nobody serves shard {}", shard));
      });
  state_->ServeRows(rows_.get());
  absl::MutexLock lock(&mu_);
  integers_ = ChangedSince(built_integers_, state_->Integers());
  for (int task = 0; task < servers; ++task) {
    ShardClient::Options client;
    client.task = task;
    client.address = options_.servers[task];
    client.epoch = options_.epoch;
    client.channel = options_.channel;
    MUSTER_ASSIGN_OR_RETURN(servers_[task]->client, ShardClient::Make(client));
  }
  return failed_;
}

void DirectorImpl::SayWaiting(const std::string& what) {
  const MonotonicTime now = Clock::now();
  if (now < next_line_) return;
  next_line_ = now + kWaitingLine;
  LogInfo("waiting for {}", what);
}

absl::StatusOr<std::optional<ChiefRecord>> DirectorImpl::NewestRecordLocked() const {
  std::optional<ChiefRecord> newest;
  bool held = false;
  for (const auto& server : servers_) {
    held = held || (server->present() && server->holds.serving_size() > 0);
    if (!server->present() || server->holds.record().empty()) continue;
    MUSTER_ASSIGN_OR_RETURN(ChiefRecord record, ChiefRecordOf(server->holds.record()));
    if (!newest || IsNewer(record, *newest)) newest = std::move(record);
  }
  if (!held) newest.reset();
  return newest;
}

Placements DirectorImpl::HeldLocked(const ChiefRecord& record) const {
  Placements recorded = record.placements;
  recorded.resize(servers_.size());
  std::vector<std::set<int>> serving(servers_.size());
  for (size_t task = 0; task < servers_.size(); ++task) {
    const Server& server = *servers_[task];
    if (server.present())
      serving[task].insert(server.holds.serving().begin(), server.holds.serving().end());
  }
  return AdoptPlacements(recorded, serving);
}

// Until every ps task is there and knows the layout. Those of a restarted chief may hold the whole
// run without one of them, which is waited for no longer than a worker then; and a stop is for the
// run that they hold.
absl::Status DirectorImpl::AwaitServers() {
  const Duration patience = options_.job.timeouts.join + options_.job.timeouts.rejoin;
  const MonotonicTime start = Clock::now();
  const MonotonicTime deadline = start + patience;
  const MonotonicTime returned = start + options_.job.timeouts.resume + kReturn;
  next_line_ = start + kWaitingLine;
  while (true) {
    std::string missing;
    {
      absl::MutexLock lock(&mu_);
      if (!failed_.ok()) return failed_;
      MUSTER_ASSIGN_OR_RETURN(const std::optional<ChiefRecord> record, NewestRecordLocked());
      const bool late = Clock::now() >= returned;
      if (record && (stop_ || late) && Complete(HeldLocked(*record))) return absl::OkStatus();
      const bool asked = std::any_of(servers_.begin(), servers_.end(), [](const auto& server) {
        return server->member.incarnation != 0 && !server->created;
      });
      // A chief before this one may have left a run on servers that are about to come back.
      const bool first = options_.epoch() <= 1;
      if (stop_ && !record && !asked && first)
        return Preempted("stopped on request before training began");
      if (stop_ && late)
        return Preempted(
            "stopped on request before all servers came back to this chief: nothing was saved");
      for (size_t task = 0; task < servers_.size(); ++task)
        if (!servers_[task]->present())
          missing += fmt::format("{}ps {} ({})", missing.empty() ? "" : ", ", task,
                                 options_.servers[task]);
      if (missing.empty()) return absl::OkStatus();
      if (!woken_) wake_.WaitFor(&mu_, kTick);
      woken_ = false;
    }
    SayWaiting(missing);
    if (Clock::now() > deadline)
      return DeadlinePassed(
          fmt::format("{} did not get ready within {:g} s", missing, Seconds(patience)));
  }
}

// The servers hold this run's state already: the chief was restarted.
absl::Status DirectorImpl::AdoptLocked(const ChiefRecord& record) {
  if (!unloaded_.ok()) {
    // Workers tell of integers those alone that they changed.
    if (!built_integers_.empty() && !record.integers) return unloaded_;
    LogWarning("{}; the servers hold the run that began with them", Message(unloaded_));
  }
  if (record.integers) {
    integers_.clear();
    for (const auto& [name, value] : *record.integers) {
      const auto built = built_integers_.find(name);
      if (built != built_integers_.end() && built->second.size() == value.size())
        integers_[name] = value;
    }
  }
  MUSTER_ASSIGN_OR_RETURN(table_, WorkTable::FromRecord(table_options_, record.work));
  placements_ = HeldLocked(record);
  validation_due_ = record.validation_due;
  test_due_ = record.test_due;
  epoch_start_ = recorded_epoch_start_ = Clock::now() - FromSeconds(record.epoch_seconds);
  ended_ = record.ended;
  if (ended_ && !ended_->empty()) stop_ = true;
  // Who works no more has nothing to tell.
  const bool tell = !ended_;
  for (const auto& [index, member] : workers_)
    table_->SetWorker(index, member.incarnation, tell && member.again);
  // Those that have not found this chief yet may have completed much that the record does not know.
  for (const auto& [index, incarnation] : record.workers)
    if (tell && !workers_.contains(index)) table_->SetWorker(index, incarnation, /*told=*/true);
  await_workers_until_ = Clock::now() + options_.job.timeouts.resume + kReturn;
  hear_until_ = Clock::now() + options_.job.timeouts.rejoin;
  table_->HearThem();
  LogInfo("the servers hold this run's state: going on after step {}, {}", table_->steps(),
          Describe(placements_));
  AddBackups(PresentLocked(), static_cast<int>(server_options_.copies), &placements_);
  return absl::OkStatus();
}

absl::Status DirectorImpl::Begin() {
  {
    absl::MutexLock lock(&mu_);
    MUSTER_ASSIGN_OR_RETURN(const std::optional<ChiefRecord> record, NewestRecordLocked());
    if (record) {
      MUSTER_RETURN_IF_ERROR(AdoptLocked(*record));
    } else {
      table_ = std::make_unique<WorkTable>(table_options_, kept_state_);
      validation_due_ = kept_state_.validation_due;
      test_due_ = kept_state_.test_due;
      anew_ = true;
      for (const auto& [index, member] : workers_) SetWorkerLocked(index, member);
    }
    MUSTER_RETURN_IF_ERROR(failed_);
    // The job may have become longer, or shorter, since.
    const checkpoint::TrainingState at = table_->state();
    std::optional<checkpoint::CallbackRecord> callbacks = kept_state_.extras.callbacks;
    bool finished = kept_state_.extras.finished;
    if (record) {
      callbacks.reset();
      if (!record->callbacks.is_null()) {
        MUSTER_ASSIGN_OR_RETURN(callbacks, checkpoint::CallbackRecordFromJson(record->callbacks));
      }
      finished = callbacks && !callbacks->stop.empty();
    }
    if (!Through(at) && !finished) {
      test_due_ = test_due_ && start_.test_every > 0 && at.offset == 0 && at.epoch > 0 &&
                  at.epoch % start_.test_every == 0;
      if (at.offset != 0) validation_due_ = false;
    }
    validation_due_ = validation_due_ && start_.validation_examples > 0;
    test_due_ = test_due_ && start_.test_examples > 0;
    recorded_due_ = {validation_due_, test_due_};
    weights_step_ = record ? -1 : kept_state_.step;
    TakeOverCallbacks(at, std::move(callbacks), finished);
    if (callbacks_) {
      recorded_callbacks_ = checkpoint::ToJson(*callbacks_);
      epochs_open_ = callbacks_->epochs_begun;
    }
    UpdateGateLocked();
    NewWorkersLocked();
    for (const auto& [index, member] : workers_) worker_since_[index] = workers_version_;
    if (record) NewViewLocked();
    running_ = true;
  }
  return absl::OkStatus();
}

// ---- Directing

bool DirectorImpl::Through(const checkpoint::TrainingState& state) const {
  const Job& job = options_.job;
  if (job.max_steps && state.step >= *job.max_steps) return true;
  if (!job.epochs && job.max_steps) return false;
  return state.epoch >= job.epochs.value_or(1);
}

// All shards are served, and everybody knows by whom.
bool DirectorImpl::SettledLocked() const {
  return view_.number() != 0 && current_view_ == view_.number() && Complete(placements_);
}

// What the servers hold is the state after the last step that was told.
bool DirectorImpl::QuietLocked() const {
  return SettledLocked() && table_->between_steps() && !table_->has_completed();
}

absl::Status DirectorImpl::Run(const DirectorStart& start) {
  absl::Status status = Prepare(start);
  if (status.ok()) {
    StartLinks();
    status = AwaitServers();
  }
  if (status.ok()) status = Begin();
  MonotonicTime next_record = Clock::now();
  while (status.ok()) {
    auto turn = Turn();
    status = turn.status();
    if (!turn.ok() || *turn) break;
    if (!callbacks_begun_ || Clock::now() < next_record) continue;
    next_record = Clock::now() + kRecord;
    RecordProgress();
  }
  return End(status);
}

// What the record tells of must have been told to stay, or the log would have a hole. So it is of
// the steps that are told here: others may have been completed since, and always are.
void DirectorImpl::RecordProgress() {
  Json work;
  ReportSteps(&work);
  if (last_step_) Tell([&](Observer* observer) { observer->OnSave(last_step_->step); });
  last_step_.reset();
  absl::MutexLock lock(&mu_);
  recorded_due_ = {validation_due_, test_due_};
  recorded_epoch_start_ = epoch_start_;
  RecordLocked(std::move(work));
}

// Workers that hear of the end ask no more. A successor of this chief has to know, or it would wait
// for what they tell.
void DirectorImpl::RecordEnd(const absl::Status& outcome) {
  {
    absl::MutexLock lock(&mu_);
    ended_ = outcome.ok() ? "" : std::string(Message(outcome));
  }
  RecordProgress();
  const MonotonicTime deadline = Clock::now() + kLastRecord;
  absl::MutexLock lock(&mu_);
  const uint64_t version = record_version_;
  while (failed_.ok() && Clock::now() < deadline) {
    const auto keeps = [&](const auto& server) { return server->record >= version; };
    const auto told = [&](const auto& server) { return !server->present() || keeps(server); };
    if (PresentLocked().empty()) return;
    // With the last record each server tells what its tables have come to.
    if (HasTables() ? std::all_of(servers_.begin(), servers_.end(), told)
                    : std::any_of(servers_.begin(), servers_.end(), keeps))
      return;
    wake_.WaitFor(&mu_, kTick);
  }
}

bool DirectorImpl::HasTables() const {
  const std::vector<VariableSpec>& variables = state_->variables();
  return std::any_of(variables.begin(), variables.end(),
                     [](const VariableSpec& variable) { return variable.table.has_value(); });
}

absl::Status DirectorImpl::End(const absl::Status& outcome) {
  absl::Status status = outcome;
  if (!status.ok() && ExitCodeOf(status) != ExitCode::kPreempted) {
    // Nobody waits for what will not come.
    absl::MutexLock lock(&mu_);
    for (const auto& server : servers_)
      if (server->client != nullptr) server->client->Cancel();
  }
  if (saver_.joinable()) saver_.join();
  if (status.ok() || ExitCodeOf(status) == ExitCode::kPreempted) {
    if (start_.checkpoints != nullptr)
      if (const absl::Status saved = start_.checkpoints->Drain(); !saved.ok())
        status = StatusFor(ExitCode::kRetryable,
                           fmt::format("the state after step {} could not be saved: {}",
                                       kept_state_.step, Message(saved)));
  }
  const bool good = status.ok() || ExitCodeOf(status) == ExitCode::kPreempted;
  bool running;
  {
    absl::MutexLock lock(&mu_);
    running = running_;
  }
  if (good && running) {
    RecordEnd(status);
    if (HasTables()) ReportTables(kept_state_.step);
  }
  StopLinks();
  Answered answered;
  absl::MutexLock lock(&mu_);
  if (table_ != nullptr && good) table_->SetDone();
  if (!good) exiting_ = true;
  if (running_) AnswerHeldLocked(Clock::now(), &answered);
  return status;
}

// Whoever worked for the chief before this one, and does not come, is lost.
void DirectorImpl::GiveUpAbsentLocked() {
  if (!await_workers_until_ || Clock::now() < *await_workers_until_) return;
  await_workers_until_.reset();
  for (const auto& [index, incarnation] : table_->workers()) {
    if (workers_.contains(index)) continue;
    LogWarning("worker {} did not come back to this chief: it is lost", index);
    table_->LoseWorker(index);
    NewWorkersLocked();
  }
}

// One that is there and tells nothing does not ask for work: it computes for longer than a chief
// may be away, or hangs, which is its phase's deadline to find out.
void DirectorImpl::GiveUpSilentLocked() {
  const std::string silent = table_->Unheard();
  if (silent.empty()) return;
  if (Clock::now() < hear_until_)
    return SayWaiting(fmt::format("{} to tell what was done before this chief was there", silent));
  LogWarning(
      "{} did not tell what was done before this chief was there: what it holds is leased "
      "again",
      silent);
  table_->StopHearing();
}

// One look at everything. True: all is done and saved.
absl::StatusOr<bool> DirectorImpl::Turn() {
  {
    Answered answered;
    absl::MutexLock lock(&mu_);
    if (!woken_) wake_.WaitFor(&mu_, kTick);
    woken_ = false;
    if (!failed_.ok()) return failed_;
    GiveUpAbsentLocked();
    GiveUpSilentLocked();
    AnswerHeldLocked(Clock::now(), &answered);
  }
  if (!report_start_ && callbacks_begun_) ReportSteps();
  MUSTER_RETURN_IF_ERROR(TakeSave());
  MUSTER_RETURN_IF_ERROR(RestoreShards());
  if (report_start_) ReportStart();
  // Before the steps that callbacks are to see.
  if (!callbacks_begun_) MUSTER_RETURN_IF_ERROR(BeginCallbacks());
  if (callbacks_begun_) ReportSteps();
  MUSTER_RETURN_IF_ERROR(steps_failed_);
  MUSTER_RETURN_IF_ERROR(callback_failed_);
  bool through = false;
  MUSTER_RETURN_IF_ERROR(Advance(&through));
  Answered answered;
  absl::MutexLock lock(&mu_);
  AnswerHeldLocked(Clock::now(), &answered);
  return through;
}

// What keeps new leases back: a save at a certain step, what an epoch's end asks for, a stop.
void DirectorImpl::UpdateGateLocked() {
  LeaseTable::Gate gate;
  const checkpoint::TrainingState at = table_->state();
  const bool wanted = save_wanted_ || cut_for_histograms_ || cut_for_callbacks_;
  gate.closed = stop_ || best_asked_ || (wanted && save_ == nullptr);
  // An epoch's end is looked at before the next one's first lease.
  gate.last_epoch = at.epoch;
  if (!table_->between_steps() || table_->has_completed() || validation_due_ || test_due_)
    gate.last_epoch = table_->gate().last_epoch.value_or(at.epoch);
  GateCallbacksLocked(&gate);
  if (start_.checkpoints != nullptr && options_.job.checkpoint.every_steps) {
    const int64_t every = *options_.job.checkpoint.every_steps;
    gate.steps = (at.step / every + 1) * every;
    // Not before the step that it stops at was told, and the save begun.
    if (table_->has_completed() && table_->gate().steps) gate.steps = table_->gate().steps;
  }
  table_->set_gate(gate);
}

absl::Status DirectorImpl::Advance(bool* through) {
  bool stop, quiet, all_done;
  std::string out;
  {
    absl::MutexLock lock(&mu_);
    stop = stop_;
    if (stop && table_->pass()) table_->CancelPass();
    UpdateGateLocked();
    quiet = QuietLocked();
    all_done = table_->through() || Stopping();
    out = table_->WhoIsOut();
  }
  if (stop) best_asked_.reset();  // all is saved then
  AdvanceBest();
  if (!stop) MUSTER_RETURN_IF_ERROR(AdvanceCallbacks());
  if (callbacks_begun_ && (stop || (all_done && (!callbacks_ || callbacks_->ended)))) {
    int64_t step;
    {
      absl::MutexLock lock(&mu_);
      step = table_->steps();
    }
    save_wanted_ = start_.checkpoints != nullptr && !IsSaved(step);
  }
  if (std::exchange(save_requested_, false) && start_.checkpoints != nullptr && !all_done) {
    SaveMoment moment;
    {
      absl::MutexLock lock(&mu_);
      moment.step = table_->steps();
    }
    moment.requested = true;
    moment.busy = save_ != nullptr;
    save_wanted_ = save_wanted_ || start_.checkpoints->Wanted(moment);
  }
  if ((save_wanted_ || cut_for_histograms_ || cut_for_callbacks_) && save_ == nullptr) {
    if (!cut_wanted_at_) cut_wanted_at_ = Clock::now();
    if (!quiet) {
      SayWaiting(fmt::format("{} before the state is saved", out));
      return absl::OkStatus();
    }
    MUSTER_RETURN_IF_ERROR(TryCut());
  }
  if (stop) {
    if (!callbacks_begun_ || !quiet || save_ != nullptr || save_wanted_) return absl::OkStatus();
    absl::MutexLock lock(&mu_);
    return Preempted(fmt::format("stopped on request after step {}", table_->steps()));
  }
  bool busy = false;
  MUSTER_RETURN_IF_ERROR(AdvancePass(&busy));
  // Before anything is recorded: the validation's metrics are known here alone.
  MUSTER_RETURN_IF_ERROR(AdvanceCallbacks());
  absl::MutexLock lock(&mu_);
  const bool done = table_->through() || Stopping();
  *through = callbacks_begun_ && !busy && !best_asked_ && QuietLocked() && done &&
             save_ == nullptr && !save_wanted_ && !cut_for_histograms_ && !cut_for_callbacks_ &&
             !CallbacksPending(table_->state()) && !(validation_due_ || test_due_) &&
             (start_.checkpoints == nullptr || !callbacks_ || IsSaved(table_->steps()));
  UpdateGateLocked();
  return absl::OkStatus();
}

// The best state so far is saved whatever the intervals say.
void DirectorImpl::AskForBest(int64_t step, int64_t epoch) {
  if (start_.checkpoints == nullptr || save_wanted_) return;
  SaveMoment moment;
  moment.step = step;
  moment.epoch = epoch;
  moment.epoch_end = true;
  moment.validated = true;
  best_asked_ = {moment, Clock::now()};
  AdvanceBest();
}

// A checkpoint that is being written is waited for here, where servers and workers are looked after
// meanwhile; after timeouts.phase.save the best is left out.
void DirectorImpl::AdvanceBest() {
  if (!best_asked_) return;
  auto& [moment, since] = *best_asked_;
  const bool saving = start_.checkpoints->IsSaving();
  moment.busy = Clock::now() - since >= SaveDeadline();
  if (saving && !moment.busy) return;
  save_wanted_ = start_.checkpoints->Wanted(moment) || save_wanted_;
  best_asked_.reset();
}

// Passes that are due, one after the other. Busy: there is one, or one to come.
absl::Status DirectorImpl::AdvancePass(bool* busy) {
  const int split = validation_due_ ? 1 : 2;
  *busy = validation_due_ || test_due_;
  if (!*busy) return absl::OkStatus();
  const int64_t examples = split == 1 ? start_.validation_examples : start_.test_examples;
  std::optional<WorkTable::PassResult> pass;
  int64_t step, epoch;
  {
    absl::MutexLock lock(&mu_);
    pass = table_->pass();
    if (!pass) {
      if (!QuietLocked() || save_wanted_ || cut_for_callbacks_) return absl::OkStatus();
      // The test's comes after what callbacks do at the end.
      if (split == 2 && CallbacksPending(table_->state())) return absl::OkStatus();
      table_->StartPass(split, examples, table_options_.leases.batch);
      pass_start_ = Clock::now();
      parts_told_ = -1;
      WakeLocked();
      return absl::OkStatus();
    }
    const checkpoint::TrainingState at = table_->state();
    step = at.step;
    epoch = std::max<int64_t>(0, at.epoch - (at.offset == 0 ? 1 : 0));
  }
  if (pass->done != parts_told_) {
    parts_told_ = pass->done;
    Tell([&](Observer* observer) {
      observer->OnEvaluateProgress(split == 1 ? "validation" : "test", pass->done, pass->total);
    });
  }
  // The checkpoint of this step is handed over first: it is the one that validation marks.
  if (pass->done < pass->total || save_ != nullptr) return absl::OkStatus();
  proto::Shown shown;
  {
    absl::MutexLock lock(&mu_);
    shown = table_->TakeShownInPass();
    table_->CancelPass();
  }
  ReportShown(split, step, shown);
  ReportLeftOut(split, pass->left_out);
  const std::vector<double>& sums = pass->sums;
  if (sums[1] == 0 && pass->left_out.examples() > 0)
    return DataError(
        fmt::format("all of the {} data is damaged, and on_error \"skip\" leaves that out",
                    split == 1 ? "validation" : "test"));
  auto metrics = state_->Metrics({sums.begin() + 2, sums.end()});
  ReportMetricImages(split, step, {sums.begin() + 2, sums.end()});
  for (const auto& [name, value] : pass->values) metrics.emplace(name, value.mean());
  if (pass->loss_divisor > 0) metrics["loss"] = sums[0] / pass->loss_divisor;
  if (callbacks_) {
    CallbackMoment moment;
    moment.step = step;
    moment.epoch = epoch;
    moment.split = static_cast<Split>(split);
    moment.metrics = metrics;
    MUSTER_RETURN_IF_ERROR(state_->Fire(Hook::kPassBegin, {step, epoch, moment.split, 0, {}}));
    MUSTER_RETURN_IF_ERROR(state_->Fire(Hook::kPassEnd, std::move(moment)));
    if (split == 1) validation_metrics_ = metrics;
  }
  ReportEpoch(split, epoch, step, static_cast<int64_t>(sums[1]),
              Seconds(Clock::now() - pass_start_), std::move(metrics));
  // With callbacks once these have seen the metrics.
  if (split == 1 && !callbacks_) AskForBest(step, epoch);
  (split == 1 ? validation_due_ : test_due_) = false;
  epoch_start_ = step_time_ = Clock::now();
  absl::MutexLock lock(&mu_);
  WakeLocked();
  return absl::OkStatus();
}

}  // namespace muster
