#include "chief/parameter_server/director/director_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "common/base/logging.h"

namespace muster::chief {
namespace {

// After timeouts.resume, a worker may take this much longer to find a restarted chief.
constexpr Duration kReturn = std::chrono::seconds(4);

std::string NewTicket() {
  std::random_device random;
  std::string ticket(32, '\0');
  for (char& c : ticket) c = static_cast<char>(random());
  return ticket;
}

// Returns the recorded buffers that this program has, with the same size.
push_pull::IntegerBuffers KnownIntegers(const push_pull::IntegerBuffers& recorded,
                                        const push_pull::IntegerBuffers& built) {
  push_pull::IntegerBuffers integers;
  for (const auto& [name, value] : recorded) {
    const auto own = built.find(name);
    if (own != built.end() && own->second.size() == value.size()) integers[name] = value;
  }
  return integers;
}

}  // namespace

DirectorState::DirectorState(const DirectorOptions& options)
    : options_(options), servers_(static_cast<int>(options.servers.size())) {
  servers_.SetPatience(options.job.timeouts.heartbeat, options.job.timeouts.rejoin);
}

// ---- Before training

void DirectorState::Prepare(LeaseCalls::Program program, push_pull::IntegerBuffers integers,
                            int64_t copies, ServerLinks* links) {
  calls_.SetProgram(std::move(program));
  calls_.SetIntegers(std::move(integers));
  servers_.SetCopies(copies);
  links_ = links;
}

// After a restart of the chief, the present servers may hold all shards although a task is missing.
// The chief then waits for this task no longer than for a worker. If a stop was requested, it does
// not wait at all.
absl::StatusOr<bool> DirectorState::ServersReady(MonotonicTime since, std::string* missing) const {
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

void DirectorState::Begin(const WorkTable::Options& options, const checkpoint::TrainingState& at) {
  table_ = std::make_unique<WorkTable>(options, at);
  servers_reset_ = true;
  for (const auto& [index, member] : workers_) SetWorker(index, member);
}

absl::Status DirectorState::Adopt(const ChiefRecord& record, const WorkTable::Options& options,
                                  const push_pull::IntegerBuffers& built) {
  if (record.integers) calls_.SetIntegers(KnownIntegers(*record.integers, built));
  MUSTER_ASSIGN_OR_RETURN(table_, WorkTable::FromRecord(options, record.work));
  recorded_.epoch_start = Clock::now() - FromSeconds(record.epoch_seconds);
  recorded_.ended = record.ended;
  if (record.ended && !record.ended->empty()) stop_ = true;
  // Workers that have ended have nothing to report.
  const bool tell = !record.ended;
  table_->Reach(servers_.newest_lease());
  // The record's workers may have completed work that the record does not have, even if they have
  // not connected yet. Workers that another process has replaced are lost.
  for (const auto& [index, incarnation] : record.workers)
    if (tell) table_->SetWorker(index, incarnation, /*returning=*/true);
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

void DirectorState::Open(bool adopted) {
  NewWorkers();
  for (const auto& [index, member] : workers_) servers_.AddWorker(index);
  if (adopted) NewView();
  calls_.Open(table_.get(), &servers_);
}

// ---- Members

void DirectorState::Admit(const AdmittedMember& member) {
  const auto [type, index] = member.task;
  if (type == TaskType::kWorker) {
    workers_[index] = member;
    if (table_ != nullptr) {
      SetWorker(index, member);
      NewWorkers();
      servers_.AddWorker(index);
    }
  } else if (type == TaskType::kPs && index < servers_.size()) {
    TakeServer(member);
  }
}

void DirectorState::SetWorker(int index, const AdmittedMember& member) {
  const bool other_past =
      servers_reset_ && member.again && !table_->HasSeen(index, member.incarnation);
  table_->SetWorker(index, member.incarnation, /*returning=*/false);
  if (other_past) table_->InvalidateWork(index);
}

void DirectorState::TakeServer(const AdmittedMember& member) {
  const int task = member.task.index;
  const uint64_t before = servers_.member(task).incarnation;
  if (before != 0 && before != member.incarnation)
    LoseServer(task, "another process has taken its place");
  servers_.Admit(member);
  // The same process returns after an interrupted session, and still holds its state.
  if (before == member.incarnation || links_ == nullptr) return;
  links_->client(task).Allow();
  links_->Wake(task);
}

bool DirectorState::Lose(const TaskId& task, uint64_t incarnation, const std::string& why,
                         bool ended) {
  const auto [type, index] = task;
  if (type == TaskType::kWorker) {
    const auto found = workers_.find(index);
    if (found == workers_.end() || found->second.incarnation != incarnation) return false;
    workers_.erase(found);
    servers_.RemoveWorker(index);
    if (table_ != nullptr) {
      table_->LoseWorker(index);
      NewWorkers();
    }
  } else if (type == TaskType::kPs && index < servers_.size()) {
    if (ended) servers_.Ended(index, incarnation);
    if (servers_.member(index).incarnation == incarnation) LoseServer(index, why);
  }
  return true;
}

void DirectorState::LoseServer(int task, const std::string& why) {
  if (links_ != nullptr) links_->client(task).Cancel();
  if (servers_.Lose(task, why, Clock::now())) NewView();
}

void DirectorState::GiveUpAbsent() {
  if (!await_workers_until_ || Clock::now() < *await_workers_until_) return;
  await_workers_until_.reset();
  for (const auto& [index, incarnation] : table_->workers()) {
    if (workers_.contains(index)) continue;
    LogWarning("worker {} did not come back to this chief: it is lost", index);
    table_->LoseWorker(index);
    NewWorkers();
  }
}

// The deadline covers workers that are connected but do not report their earlier work. Such a
// worker computes for very long, or it hangs, which the deadline of its phase detects.
std::string DirectorState::GiveUpSilent() {
  const std::string silent = table_->WorkersNotReported();
  if (silent.empty() || Clock::now() < recovery_deadline_) return silent;
  LogWarning(
      "{} did not report the work that it did under the earlier chief: its leases are assigned "
      "again",
      silent);
  table_->AbandonRecovery();
  return "";
}

// ---- Calls to servers

bool DirectorState::Answered(int task, const ServerCall& call, ServerLinks::Answer answer) {
  if (servers_.member(task).incarnation != call.incarnation) return false;
  servers_.Succeeded(task, call, Clock::now());
  if (auto* created = std::get_if<proto::CreateReply>(&answer)) {
    if (servers_.Created(task, std::move(*created))) NewView();
  } else if (const auto* beaten = std::get_if<proto::BeatReply>(&answer)) {
    const ShardServers::Change change = servers_.HandleBeat(task, *beaten);
    if (change == ShardServers::Change::kView) NewView();
    if (change == ShardServers::Change::kRecord && table_ != nullptr) NewRecord(progress());
  }
  // Other tasks or workers may wait for what has changed at this task.
  links_->WakeAll();
  return true;
}

bool DirectorState::CallFailed(int task, const ServerCall& call, const absl::Status& status) {
  if (servers_.member(task).incarnation != call.incarnation) return false;
  // Retries. The coordinator decides whether the task is lost.
  if (ShardClient::MayRetry(status)) {
    servers_.Failed(task, Clock::now());
    return false;
  }
  Fail(status);
  return true;
}

void DirectorState::Fail(const absl::Status& why) {
  if (failed_.ok()) failed_ = why;
}

void DirectorState::CancelCalls() {
  for (int task = 0; links_ != nullptr && task < links_->size(); ++task)
    links_->client(task).Cancel();
}

// ---- Views, workers and records for the servers

void DirectorState::NewView() {
  servers_.NewView(static_cast<uint64_t>(options_.term()) << 32 | ++view_count_, NewTicket(),
                   table_ != nullptr ? &table_->ledger() : nullptr);
  if (table_ != nullptr) NewRecord(progress());
}

void DirectorState::NewWorkers() {
  servers_.SetWorkers(table_->workers());
  links_->WakeAll();
}

DirectorState::Progress DirectorState::progress() const {
  return {table_->ToRecord(), table_->workers(), table_->revision()};
}

void DirectorState::NewRecord(Progress progress) {
  ChiefRecord record;
  record.view = servers_.view().number();
  record.placements = servers_.placements();
  record.awaited = servers_.awaited();
  record.workers.assign(progress.workers.begin(), progress.workers.end());
  record.work = std::move(progress.work);
  std::tie(record.validation_due, record.test_due) = recorded_.due;
  record.epoch_seconds = Seconds(Clock::now() - recorded_.epoch_start);
  record.ended = recorded_.ended;
  record.callbacks = recorded_.callbacks;
  size_t bytes = 0;
  for (const auto& [name, value] : calls_.integers()) bytes += value.size();
  if (bytes <= kMaxRecordedIntegers) record.integers = calls_.integers();
  servers_.SetRecord(ToText(record), progress.revision);
  links_->WakeAll();
}

void DirectorState::Restored(const Targets& targets, int64_t step) {
  const Placements before = servers_.placements();
  servers_.Restored(targets);
  const proto::View& view = servers_.view();
  for (size_t s = 0; s < before.size(); ++s) {
    if (before[s].primary >= 0 || servers_.placements()[s].primary < 0 || view.number() == 0)
      continue;
    // No task serves the shard in the current view, so all acknowledged updates belong to earlier
    // views.
    const int64_t lost =
        table_->ledger().Restore(static_cast<int>(s), step, view.number(), table_->steps());
    LogWarning("shard {} is restored as it was after step {}: {} updates of it are lost", s, step,
               lost);
  }
  table_->PullAll();
  NewView();
}

// ---- Questions

bool DirectorState::quiet() const {
  return servers_.Settled() && table_->between_steps() && !table_->has_completed();
}

DirectorRecord DirectorState::counters() const {
  DirectorRecord record;
  if (table_ == nullptr) return record;
  record.torn = table_->torn_pushes();
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

}  // namespace muster::chief
