#include "chief/shards/shard_servers.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/logging.h"

namespace muster::chief {
namespace {

constexpr Duration kBeat = std::chrono::seconds(1);

}  // namespace

// ---- Processes

void ShardServers::Admit(const AdmittedMember& member) {
  assignment_.Admit(member.task.index, member.incarnation);
  servers_[member.task.index].member = member;
}

bool ShardServers::Lose(int task, const std::string& why, MonotonicTime now) {
  servers_[task] = Server();
  ++changes_;
  const bool served = view_.number() != 0;
  assignment_.Lose(task, served ? std::make_optional(now) : std::nullopt, why);
  return served;
}

bool ShardServers::Created(int task, proto::CreateReply reply) {
  Server& server = servers_[task];
  server.created = true;
  server.holds = std::move(reply);
  if (view_.number() == 0) return false;
  return assignment_.Join(task, {server.holds.serving().begin(), server.holds.serving().end()},
                          processes());
}

ShardServers::Change ShardServers::HandleBeat(int task, const proto::BeatReply& reply) {
  Server& server = servers_[task];
  if (reply.backup_error() != server.last_error && !reply.backup_error().empty())
    LogWarning("ps {}: {}", task, reply.backup_error());
  server.last_error = reply.backup_error();
  server.tables.clear();
  for (const proto::TableCounts& counts : reply.tables())
    server.tables[counts.variable()] = {counts.rows(), counts.bytes(),     counts.lookups(),
                                        counts.hits(), counts.evictions(), counts.refused()};
  if (reply.view() != view_.number()) return Change::kNone;
  return assignment_.HandleBeat(task, reply, processes());
}

Present ShardServers::present() const {
  Present present;
  for (int task = 0; task < size(); ++task)
    if (IsPresent(task)) present.insert(task);
  return present;
}

ServerProcesses ShardServers::processes() const {
  ServerProcesses processes{.present = present()};
  for (const Server& server : servers_) processes.incarnations.push_back(server.member.incarnation);
  return processes;
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
  for (int s = 0; s < size(); ++s) {
    const ShardPlacement& shard = placements()[s];
    proto::ShardPlace& place = *view_.add_shards();
    place.set_shard(s);
    place.set_primary(shard.primary);
    place.set_backup(shard.backup);
    place.set_backup_in_sync(shard.in_sync);
    if (ledger != nullptr) place.set_restored(ledger->restored(s));
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
  assignment_.UseView(processes());
  LogInfo("view {}.{}: {}", current_view_ >> 32, current_view_ & 0xffffffff,
          Describe(placements()));
}

std::string ShardServers::WhyClosed(int worker) const {
  for (int s = 0; s < size(); ++s)
    if (placements()[s].primary < 0) return fmt::format("nobody serves shard {} yet", s);
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

void ShardServers::Restored(const std::vector<std::pair<int, int>>& targets) {
  ++changes_;
  assignment_.Restored(targets, processes());
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

void ShardServers::Adopt(const ChiefRecord& record) {
  assignment_.Adopt(PlacementsIn(record), processes());
}

std::map<int, push_pull::TableStatistics> ShardServers::tables() const {
  std::map<int, push_pull::TableStatistics> all;
  for (const Server& server : servers_)
    for (const auto& [variable, statistics] : server.tables) all[variable] += statistics;
  return all;
}

}  // namespace muster::chief
