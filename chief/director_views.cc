// Members, views, and shards that are restored.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "chief/director_impl.h"
#include "common/base/logging.h"

namespace muster {
namespace {

std::string NewTicket() {
  std::random_device random;
  std::string ticket(32, '\0');
  for (char& c : ticket) c = static_cast<char>(random());
  return ticket;
}

}  // namespace

void DirectorImpl::OnAdmitted(const AdmittedMember& member) {
  Answered answered;
  absl::MutexLock lock(&mu_);
  TakeMemberLocked(member);
  WakeLocked();
  if (running_) AnswerHeldLocked(Clock::now(), &answered);
}

void DirectorImpl::SetWorkerLocked(int index, const AdmittedMember& member) {
  const bool other_past = anew_ && member.again && !table_->Met(index, member.incarnation);
  table_->SetWorker(index, member.incarnation, /*told=*/false);
  if (other_past) table_->Void(index);
}

void DirectorImpl::TakeMemberLocked(const AdmittedMember& member) {
  const auto [type, index] = member.task;
  if (type == TaskType::kWorker) {
    workers_[index] = member;
    if (table_ == nullptr) return;
    SetWorkerLocked(index, member);
    NewWorkersLocked();
    worker_since_[index] = workers_version_;
    return;
  }
  if (type != TaskType::kPs || index >= static_cast<int>(servers_.size())) return;
  Server& server = *servers_[index];
  // Its session was interrupted for a while; what it holds was not.
  if (server.member.incarnation == member.incarnation) {
    server.member = member;
    return;
  }
  if (server.member.incarnation != 0)
    LoseServerLocked(index, "another process has taken its place");
  server.member = member;
  if (server.client != nullptr) server.client->Allow();
  server.wake.SignalAll();
}

void DirectorImpl::OnLost(const TaskId& task, uint64_t incarnation, const std::string& why) {
  Answered answered;
  absl::MutexLock lock(&mu_);
  const auto [type, index] = task;
  if (type == TaskType::kWorker) {
    const auto found = workers_.find(index);
    if (found == workers_.end() || found->second.incarnation != incarnation) return;
    workers_.erase(found);
    worker_since_.erase(index);
    if (table_ != nullptr) {
      table_->LoseWorker(index);
      NewWorkersLocked();
    }
  } else if (type == TaskType::kPs && index < static_cast<int>(servers_.size()) &&
             servers_[index]->member.incarnation == incarnation) {
    LoseServerLocked(index, why);
  }
  WakeLocked();
  if (running_) AnswerHeldLocked(Clock::now(), &answered);
}

void DirectorImpl::LoseServerLocked(int task, const std::string& why) {
  Server& server = *servers_[task];
  if (server.client != nullptr) server.client->Cancel();
  server.member = AdmittedMember();
  server.created = false;
  server.holds.Clear();
  server.view = server.workers = server.record = 0;
  server.next_beat = server.next_try = MonotonicTime();
  server.wake.SignalAll();
  const Placements before = placements_;
  LoseServer(task, &placements_);
  if (view_.number() == 0) return;
  for (size_t s = 0; s < placements_.size(); ++s) {
    if (before[s].primary != task) continue;
    if (placements_[s].primary >= 0)
      LogWarning("ps {} is lost ({}): its backup on ps {} takes shard {} over", task, why,
                 placements_[s].primary, s);
    else
      LogWarning(
          "ps {} is lost ({}), and nobody else has shard {}: it waits for ps {} to come back", task,
          why, s, s);
  }
  NewViewLocked();
}

void DirectorImpl::CreatedLocked(int task, proto::CreateReply reply) {
  Server& server = *servers_[task];
  server.created = true;
  server.holds = std::move(reply);
  if (view_.number() == 0) return;
  // What it may hold from before is of no use: it was not in the views since.
  if (AddBackups(PresentLocked(), static_cast<int>(server_options_.copies), &placements_))
    NewViewLocked();
}

void DirectorImpl::BeatLocked(int task, const proto::BeatReply& reply) {
  Server& server = *servers_[task];
  lost_pushes_.Take(reply.lost());
  if (reply.trouble() != server.trouble && !reply.trouble().empty())
    LogWarning("ps {}: {}", task, reply.trouble());
  server.trouble = reply.trouble();
  server.tables.clear();
  for (const proto::TableCounts& counts : reply.tables())
    server.tables[counts.variable()] = {counts.rows(), counts.bytes(),     counts.lookups(),
                                        counts.hits(), counts.evictions(), counts.refused()};
  if (reply.view() != view_.number()) return;
  bool changed = false;
  for (const int shard : reply.synced()) {
    if (!Synced(task, shard, &placements_)) continue;
    changed = true;
    LogInfo("ps {} is backup of shard {} again", placements_[shard].backup, shard);
  }
  // No new view: the primary counts it in already. Nor another one of this number, which a server
  // that is told it again would refuse: the record says it.
  if (changed) NewRecordLocked();
  if (GoOnWithoutBackupsLocked(task, reply)) NewViewLocked();
}

// Both are heard of, so that nobody is lost: the link between them is.
bool DirectorImpl::GoOnWithoutBackupsLocked(int task, const proto::BeatReply& reply) {
  // Well before a push ends for want of a new view.
  constexpr Duration kMost = std::chrono::seconds(60);
  const Duration most = std::min<Duration>(options_.job.timeouts.heartbeat, kMost);
  bool changed = false;
  for (const auto& [shard, seconds] : reply.waiting()) {
    if (seconds < Seconds(most)) continue;
    if (!GoOnWithoutBackup(task, shard, &placements_)) continue;
    changed = true;
    LogWarning(
        "ps {} has waited {:.1f} s for ps {}, the backup of shard {}: it goes on without that "
        "one, until it is up to date again",
        task, seconds, placements_[shard].backup, shard);
  }
  return changed;
}

Present DirectorImpl::PresentLocked() const {
  Present present;
  for (size_t task = 0; task < servers_.size(); ++task)
    if (servers_[task]->present()) present.insert(static_cast<int>(task));
  return present;
}

void DirectorImpl::NewViewLocked() {
  view_.Clear();
  view_.set_number(static_cast<uint64_t>(options_.epoch()) << 32 | ++view_count_);
  view_.set_ticket(NewTicket());
  for (size_t s = 0; s < placements_.size(); ++s) {
    const ShardPlacement& shard = placements_[s];
    proto::ShardPlace& place = *view_.add_shards();
    place.set_shard(static_cast<int>(s));
    place.set_primary(shard.primary);
    place.set_backup(shard.backup);
    place.set_backup_in_sync(shard.in_sync);
    if (table_ != nullptr) place.set_restored(table_->ledger().restored(static_cast<int>(s)));
    if (shard.primary >= 0) {
      place.set_primary_address(servers_[shard.primary]->member.data_address);
      place.set_primary_host_id(servers_[shard.primary]->member.host_id);
    }
    if (shard.backup >= 0) place.set_backup_address(servers_[shard.backup]->member.data_address);
  }
  NewRecordLocked();
  view_record_ = record_version_;
}

void DirectorImpl::NewWorkersLocked() {
  ++workers_version_;
  for (const auto& server : servers_) server->wake.SignalAll();
}

void DirectorImpl::NewRecordLocked() {
  if (table_ != nullptr) RecordLocked(table_->ToRecord());
}

// What a restarted chief goes on with.
void DirectorImpl::RecordLocked(Json work) {
  ChiefRecord record;
  record.view = view_.number();
  record.placements = placements_;
  const std::map<int, uint64_t> workers = table_->workers();
  record.workers.assign(workers.begin(), workers.end());
  record.work = std::move(work);
  record.validation_due = recorded_due_.first;
  record.test_due = recorded_due_.second;
  record.epoch_seconds = Seconds(Clock::now() - recorded_epoch_start_);
  record.ended = ended_;
  record.callbacks = recorded_callbacks_;
  size_t bytes = 0;
  for (const auto& [name, value] : integers_) bytes += value.size();
  if (bytes <= kMostRecordedIntegers) record.integers = integers_;
  record_ = ToText(record);
  ++record_version_;
  for (const auto& server : servers_) server->wake.SignalAll();
}

// ---- Restoring

absl::Status DirectorImpl::FillAll(const std::vector<std::pair<int, int>>& targets) {
  std::vector<std::unique_ptr<ShardClient::Filling>> fillings(targets.size());
  {
    absl::MutexLock lock(&mu_);
    for (size_t i = 0; i < targets.size(); ++i)
      if (!layout_.chunks[targets[i].first].empty())
        fillings[i] = servers_[targets[i].second]->client->Fill();
  }
  std::vector<std::thread> threads;
  std::vector<absl::Status> results(targets.size());
  for (size_t i = 0; i < targets.size(); ++i)
    threads.emplace_back([&, i] {
      for (const proto::ChunkContent& chunk : kept_[targets[i].first])
        if (results[i].ok()) results[i] = fillings[i]->Write(chunk);
    });
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) MUSTER_RETURN_IF_ERROR(result);
  RowFiller::Fillings by_shard;
  for (size_t i = 0; i < targets.size(); ++i)
    if (fillings[i] != nullptr) by_shard[targets[i].first].push_back(fillings[i].get());
  RowFiller rows(layout_, by_shard);
  for (const ServedTable& table : tables_) MUSTER_RETURN_IF_ERROR(rows.Fill(table, kept_rows_));
  for (const auto& filling : fillings)
    if (filling != nullptr) MUSTER_RETURN_IF_ERROR(filling->Finish());
  return absl::OkStatus();
}

// Fills the shards that nobody has with the state that was kept.
absl::Status DirectorImpl::RestoreShards() {
  std::vector<std::pair<int, int>> targets;
  std::vector<uint64_t> incarnations;
  const int copies = static_cast<int>(server_options_.copies);
  {
    absl::MutexLock lock(&mu_);
    // The view without them comes first: it ends all pushes.
    if (Complete(placements_) || current_view_ != view_.number()) return absl::OkStatus();
    const Present present = PresentLocked();
    const auto restore = ToRestore(placements_, present, copies);
    if (restore.empty()) return absl::OkStatus();
    Placements wanted = placements_;
    for (const auto& [shard, task] : restore) Restored(shard, task, &wanted);
    AddBackups(present, copies, &wanted);
    for (int s = 0; s < static_cast<int>(wanted.size()); ++s) {
      if (placements_[s].primary >= 0) continue;
      if (wanted[s].primary >= 0) targets.emplace_back(s, wanted[s].primary);
      if (wanted[s].backup >= 0) targets.emplace_back(s, wanted[s].backup);
    }
    for (const auto& [shard, task] : targets)
      incarnations.push_back(servers_[task]->member.incarnation);
  }
  // They would begin with what build() made.
  if (!targets.empty() && !unloaded_.ok()) return unloaded_;
  const absl::Status filled = FillAll(targets);
  Answered answered;
  absl::MutexLock lock(&mu_);
  if (!filled.ok() && !ShardClient::MayRetry(filled)) return filled;
  for (size_t i = 0; i < targets.size(); ++i)
    if (servers_[targets[i].second]->member.incarnation != incarnations[i]) return absl::OkStatus();
  if (!filled.ok()) {
    LogWarning("{}; it is tried again", Message(filled));
    return absl::OkStatus();
  }
  RestoredLocked(targets);
  if (running_) AnswerHeldLocked(Clock::now(), &answered);
  return absl::OkStatus();
}

void DirectorImpl::RestoredLocked(const std::vector<std::pair<int, int>>& targets) {
  for (size_t s = 0; s < placements_.size(); ++s) {
    const bool own = placements_[s].primary < 0;
    for (const auto& [shard, task] : targets) {
      if (shard != static_cast<int>(s)) continue;
      if (placements_[s].primary < 0) {
        Restored(shard, task, &placements_);
      } else if (placements_[s].primary != task) {
        placements_[s].backup = task;
        placements_[s].in_sync = true;
      }
    }
    if (!own || placements_[s].primary < 0) continue;
    if (view_.number() == 0 || table_ == nullptr) continue;
    // Nobody serves it in the view of now: whatever was acknowledged was in those before.
    const int64_t lost = table_->ledger().Restore(static_cast<int>(s), kept_state_.step,
                                                  view_.number(), table_->steps());
    LogWarning("shard {} is restored as it was after step {}: {} updates of it are lost", s,
               kept_state_.step, lost);
  }
  if (table_ != nullptr) table_->PullAll();
  NewViewLocked();
}

}  // namespace muster
