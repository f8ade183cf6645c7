#include "chief/shards/shard_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/logging.h"

namespace muster::chief {
namespace {

constexpr Duration kBeat = std::chrono::seconds(1);
// This time is well below the time after which a push fails for lack of a new view.
constexpr Duration kMaxWithBackup = std::chrono::seconds(60);

}  // namespace

// ---- Processes

// The previous process of the task has ended, or is refused for good.
void ShardServers::Admit(const AdmittedMember& member) {
  const int task = member.task.index;
  for (Holders& holders : holders_)
    std::erase_if(holders, [&](const auto& holder) {
      return holder.first == task && holder.second != member.incarnation;
    });
  servers_[task].member = member;
}

void ShardServers::Ended(int task, uint64_t incarnation) {
  for (Holders& holders : holders_)
    std::erase_if(holders, [&](const auto& holder) {
      return holder.first == task && holder.second == incarnation;
    });
}

bool ShardServers::Lose(int task, const std::string& why, MonotonicTime now) {
  servers_[task] = Server();
  ++changes_;
  const Placements before = placements_;
  LoseServer(task, &placements_);
  if (view_.number() == 0) return false;
  for (size_t s = 0; s < placements_.size(); ++s) {
    if (before[s].primary != task) continue;
    if (placements_[s].primary >= 0) {
      LogWarning("ps {} is lost ({}): its backup on ps {} takes over shard {}", task, why,
                 placements_[s].primary, s);
      continue;
    }
    unserved_since_[s] = now;
    if (holders_[s].empty())
      LogWarning("ps {} is lost ({}), and no other server has shard {}: it must be restored", task,
                 why, s);
    else
      LogWarning(
          "ps {} is lost ({}), and no other server has shard {}: the chief waits for {} to return "
          "with it, {:g} s at the most (timeouts.rejoin)",
          task, why, s, Describe(holders_[s]), Seconds(rejoin_));
  }
  return true;
}

bool ShardServers::Created(int task, proto::CreateReply reply) {
  Server& server = servers_[task];
  server.created = true;
  server.holds = std::move(reply);
  if (view_.number() == 0) return false;
  const bool taken = TakeHeld(task, {server.holds.serving().begin(), server.holds.serving().end()});
  // The task's state of other shards is outdated, because it was not in the views since.
  return AddBackups(present(), copies_, &placements_) || taken;
}

// Uses the task's state of shards that no task serves.
bool ShardServers::TakeHeld(int task, const std::set<int>& serving) {
  bool taken = false;
  for (int s = 0; s < size(); ++s) {
    if (placements_[s].primary >= 0 || !holders_[s].contains(task)) continue;
    if (!serving.contains(s)) {
      holders_[s].erase(task);  // A view has made the task drop the shard.
      continue;
    }
    chief::Restored(s, task, &placements_);
    LogInfo("ps {} returned with shard {}: no update of it is lost", task, s);
    taken = true;
  }
  return taken;
}

void ShardServers::SetHolders(int shard) {
  const ShardPlacement& place = placements_[shard];
  if (place.primary < 0) return;
  holders_[shard] = {{place.primary, member(place.primary).incarnation}};
  if (place.in_sync) holders_[shard][place.backup] = member(place.backup).incarnation;
}

ShardServers::Change ShardServers::HandleBeat(int task, const proto::BeatReply& reply) {
  Server& server = servers_[task];
  if (reply.trouble() != server.last_error && !reply.trouble().empty())
    LogWarning("ps {}: {}", task, reply.trouble());
  server.last_error = reply.trouble();
  server.tables.clear();
  for (const proto::TableCounts& counts : reply.tables())
    server.tables[counts.variable()] = {counts.rows(), counts.bytes(),     counts.lookups(),
                                        counts.hits(), counts.evictions(), counts.refused()};
  if (reply.view() != view_.number()) return Change::kNone;
  bool changed = false;
  for (const int shard : reply.synced()) {
    if (!Synced(task, shard, &placements_)) continue;
    SetHolders(shard);
    changed = true;
    LogInfo("ps {} is backup of shard {} again", placements_[shard].backup, shard);
  }
  const bool taken = TakeHeld(task, {reply.serving().begin(), reply.serving().end()});
  if (taken) AddBackups(present(), copies_, &placements_);
  if (DropBackups(task, reply) || taken) return Change::kView;
  // No new view is needed, because the primary already knows that its backup is in sync. Only the
  // record must include the change.
  return changed ? Change::kRecord : Change::kNone;
}

// Handles a broken link between a primary and its backup while both tasks send heartbeats.
bool ShardServers::DropBackups(int task, const proto::BeatReply& reply) {
  const Duration most = std::min(heartbeat_, kMaxWithBackup);
  bool changed = false;
  for (const auto& [shard, seconds] : reply.waiting()) {
    if (seconds < Seconds(most) || !CanDropBackup(task, shard, &placements_)) continue;
    changed = true;
    LogWarning(
        "ps {} has waited {:.1f} s for ps {}, the backup of shard {}: it continues without this "
        "backup until the backup is up to date again",
        task, seconds, placements_[shard].backup, shard);
  }
  return changed;
}

Present ShardServers::present() const {
  Present present;
  for (int task = 0; task < size(); ++task)
    if (IsPresent(task)) present.insert(task);
  return present;
}

bool ShardServers::SomeHaveReturned() const {
  return std::any_of(servers_.begin(), servers_.end(), [](const Server& server) {
    return server.member.incarnation != 0 && server.member.again;
  });
}

bool ShardServers::SomeAreNew() const {
  return std::any_of(servers_.begin(), servers_.end(), [](const Server& server) {
    return server.member.incarnation != 0 && !server.created;
  });
}

// ---- Calls

ServerCall ShardServers::NextCall(int task, MonotonicTime now) const {
  const Server& server = servers_[task];
  ServerCall call;
  call.incarnation = server.member.incarnation;
  call.next = now + kBeat;
  if (call.incarnation == 0) return call;
  if (now < server.next_try) {
    call.next = server.next_try;
  } else if (!server.created) {
    call.kind = ServerCall::Kind::kCreate;
  } else if (server.workers < workers_version_) {
    call.kind = ServerCall::Kind::kSetWorkers;
    call.version = workers_version_;
    call.workers = workers_;
  } else if (server.record < record_version_ || now >= server.next_beat) {
    call.kind = ServerCall::Kind::kBeat;
    call.version = record_version_;
    call.record = record_;
  } else if (server.view < view_.number() && SomeHaveRecord(view_record_)) {
    call.kind = ServerCall::Kind::kSetView;
    call.version = view_.number();
    call.view = view_;
  } else {
    call.next = server.next_beat;
  }
  return call;
}

void ShardServers::Failed(int task, MonotonicTime now) {
  servers_[task].next_try = now + servers_[task].backoff.Next();
}

void ShardServers::Succeeded(int task, const ServerCall& call, MonotonicTime now) {
  Server& server = servers_[task];
  server.backoff.Reset();
  if (call.kind != ServerCall::Kind::kBeat) ++changes_;
  switch (call.kind) {
    case ServerCall::Kind::kSetWorkers:
      server.workers = call.version;
      break;
    case ServerCall::Kind::kBeat:
      if (server.record < revision_record_ && call.version >= revision_record_) ++changes_;
      server.record = call.version;
      server.next_beat = now + kBeat;
      break;
    case ServerCall::Kind::kSetView:
      server.view = call.version;
      // The reply has the shards that the task serves and its tables' statistics.
      server.next_beat = now;
      CheckView();
      break;
    case ServerCall::Kind::kCreate:
    case ServerCall::Kind::kNone:
      break;
  }
}

// ---- The versions that tasks receive

void ShardServers::SetWorkers(std::map<int, uint64_t> workers) {
  workers_ = std::move(workers);
  ++workers_version_;
}

void ShardServers::SetRecord(std::string record, uint64_t revision) {
  record_ = std::move(record);
  ++record_version_;
  if (IsRecorded(revision)) return;
  revision_ = revision;
  revision_record_ = record_version_;
}

bool ShardServers::SomeHaveRecord(uint64_t version) const {
  return std::any_of(servers_.begin(), servers_.end(), [version](const Server& server) {
    return server.present() && server.record >= version;
  });
}

bool ShardServers::AllHaveRecord(uint64_t version) const {
  return std::all_of(servers_.begin(), servers_.end(), [version](const Server& server) {
    return !server.present() || server.record >= version;
  });
}

void ShardServers::NewView(uint64_t number, std::string ticket, const ShardLedger* ledger) {
  view_.Clear();
  view_.set_number(number);
  view_.set_ticket(std::move(ticket));
  for (size_t s = 0; s < placements_.size(); ++s) {
    const ShardPlacement& shard = placements_[s];
    proto::ShardPlace& place = *view_.add_shards();
    place.set_shard(static_cast<int>(s));
    place.set_primary(shard.primary);
    place.set_backup(shard.backup);
    place.set_backup_in_sync(shard.in_sync);
    if (ledger != nullptr) place.set_restored(ledger->restored(static_cast<int>(s)));
    if (shard.primary >= 0) {
      place.set_primary_address(servers_[shard.primary].member.data_address);
      place.set_primary_host_id(servers_[shard.primary].member.host_id);
    }
    if (shard.backup >= 0) place.set_backup_address(servers_[shard.backup].member.data_address);
  }
  view_record_ = record_version_ + 1;
  ++changes_;
}

void ShardServers::CheckView() {
  if (view_.number() == 0 || all_have_view()) return;
  for (const Server& server : servers_)
    if (server.present() && server.view < view_.number()) return;
  current_view_ = view_.number();
  for (int s = 0; s < size(); ++s) SetHolders(s);
  LogInfo("view {}.{}: {}", current_view_ >> 32, current_view_ & 0xffffffff, Describe(placements_));
}

std::string ShardServers::WhyClosed(int worker) const {
  for (size_t s = 0; s < placements_.size(); ++s)
    if (placements_[s].primary < 0) return fmt::format("nobody serves shard {} yet", s);
  const auto since = worker_since_.find(worker);
  for (int task = 0; task < size(); ++task) {
    const Server& server = servers_[task];
    if (!server.present()) continue;
    if (server.view < view_.number()) return fmt::format("ps {} has not got the view yet", task);
    if (since == worker_since_.end() || server.workers < since->second)
      return fmt::format("ps {} does not know worker {} yet", task, worker);
  }
  return view_.number() == 0 ? "there is no view yet" : "";
}

// ---- Shards

std::vector<std::pair<int, int>> ShardServers::TakeUnserved(MonotonicTime now) {
  std::vector<std::pair<int, int>> targets;
  const Present there = present();
  Placements wanted = placements_;
  for (const auto& [shard, task] : ToRestore(placements_, there, copies_)) {
    if (!MustRestore(holders_[shard], unserved_since_[shard], rejoin_, now)) continue;
    if (!holders_[shard].empty())
      LogWarning("{} did not come back with shard {} within {:g} s (timeouts.rejoin)",
                 Describe(holders_[shard]), shard, Seconds(rejoin_));
    holders_[shard].clear();
    chief::Restored(shard, task, &wanted);
  }
  AddBackups(there, copies_, &wanted);
  for (int s = 0; s < size(); ++s) {
    if (placements_[s].primary >= 0) continue;
    if (wanted[s].primary >= 0) targets.emplace_back(s, wanted[s].primary);
    if (wanted[s].backup >= 0) targets.emplace_back(s, wanted[s].backup);
  }
  return targets;
}

void ShardServers::Restored(const std::vector<std::pair<int, int>>& targets) {
  ++changes_;
  for (const auto& [shard, task] : targets) {
    if (placements_[shard].primary < 0)
      chief::Restored(shard, task, &placements_);
    else if (placements_[shard].primary != task)
      placements_[shard] = {placements_[shard].primary, task, true};
    SetHolders(shard);
  }
}

int64_t ShardServers::newest_lease() const {
  int64_t newest = 0;
  for (const Server& server : servers_) newest = std::max(newest, server.holds.newest_lease());
  return newest;
}

absl::StatusOr<std::optional<ChiefRecord>> ShardServers::NewestRecord() const {
  std::optional<ChiefRecord> newest;
  bool held = false;
  for (const Server& server : servers_) {
    held = held || (server.present() && server.holds.serving_size() > 0);
    if (!server.present() || server.holds.record().empty()) continue;
    MUSTER_ASSIGN_OR_RETURN(ChiefRecord record, ChiefRecordOf(server.holds.record()));
    if (!newest || IsNewer(record, *newest)) newest = std::move(record);
  }
  if (!held) newest.reset();
  return newest;
}

Placements ShardServers::PlacementsIn(const ChiefRecord& record) const {
  Placements recorded = record.placements;
  recorded.resize(servers_.size());
  std::vector<std::set<int>> serving(servers_.size());
  for (int task = 0; task < size(); ++task) {
    const auto& held = servers_[task].holds.serving();
    if (IsPresent(task)) serving[task].insert(held.begin(), held.end());
  }
  Placements held = AdoptPlacements(recorded, serving);
  for (size_t s = 0; s < std::min(recorded.size(), record.awaited.size()); ++s) {
    if (recorded[s].primary >= 0) continue;
    for (const auto& [task, incarnation] : record.awaited[s])
      if (task < size() && member(task).incarnation == incarnation &&
          serving[task].contains(static_cast<int>(s)))
        held[s] = {task, -1, false};
  }
  return held;
}

std::vector<Holders> ShardServers::awaited() const {
  std::vector<Holders> awaited = holders_;
  for (int s = 0; s < size(); ++s)
    if (placements_[s].primary >= 0) awaited[s].clear();
  return awaited;
}

void ShardServers::Adopt(const ChiefRecord& record) {
  placements_ = PlacementsIn(record);
  for (int s = 0; s < size(); ++s) SetHolders(s);
  AddBackups(present(), copies_, &placements_);
}

std::map<int, push_pull::TableStatistics> ShardServers::tables() const {
  std::map<int, push_pull::TableStatistics> all;
  for (const Server& server : servers_)
    for (const auto& [variable, statistics] : server.tables) all[variable] += statistics;
  return all;
}

}  // namespace muster::chief
