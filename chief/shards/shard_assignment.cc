#include "chief/shards/shard_assignment.h"

#include <algorithm>
#include <utility>

#include "common/base/logging.h"

namespace muster::chief {
namespace {

// This time is well below the time after which a push fails for lack of a new view.
constexpr Duration kMaxWithBackup = std::chrono::seconds(60);

}  // namespace

// ---- Processes

void ShardAssignment::Admit(int task, uint64_t incarnation) {
  for (Holders& holders : holders_)
    std::erase_if(holders, [&](const auto& holder) {
      return holder.first == task && holder.second != incarnation;
    });
}

void ShardAssignment::Ended(int task, uint64_t incarnation) {
  for (Holders& holders : holders_)
    std::erase_if(holders, [&](const auto& holder) {
      return holder.first == task && holder.second == incarnation;
    });
}

void ShardAssignment::Lose(int task, std::optional<MonotonicTime> now, const std::string& why) {
  const Placements before = placements_;
  LoseServer(task, &placements_);
  if (!now) return;
  for (int s = 0; s < size(); ++s) {
    if (before[s].primary != task) continue;
    if (placements_[s].primary >= 0) {
      LogWarning("ps {} is lost ({}): its backup on ps {} takes over shard {}", task, why,
                 placements_[s].primary, s);
      continue;
    }
    unserved_since_[s] = *now;
    if (holders_[s].empty())
      LogWarning("ps {} is lost ({}), and no other server has shard {}: it must be restored", task,
                 why, s);
    else
      LogWarning(
          "ps {} is lost ({}), and no other server has shard {}: the chief waits for {} to return "
          "with it, {:g} s at the most (timeouts.rejoin)",
          task, why, s, Describe(holders_[s]), Seconds(rejoin_));
  }
}

bool ShardAssignment::Join(int task, const std::set<int>& serving,
                           const ServerProcesses& processes) {
  const bool taken = TakeHeld(task, serving);
  // The task's state of other shards is outdated, because it was not in the views since.
  return AddBackups(processes.present, copies_, &placements_) || taken;
}

// Uses the task's state of shards that no task serves.
bool ShardAssignment::TakeHeld(int task, const std::set<int>& serving) {
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

void ShardAssignment::SetHolders(int shard, const ServerProcesses& processes) {
  const ShardPlacement& place = placements_[shard];
  if (place.primary < 0) return;
  holders_[shard] = {{place.primary, processes.incarnations[place.primary]}};
  if (place.in_sync) holders_[shard][place.backup] = processes.incarnations[place.backup];
}

ShardAssignment::Change ShardAssignment::HandleBeat(int task, const proto::BeatReply& reply,
                                                    const ServerProcesses& processes) {
  bool changed = false;
  for (const int shard : reply.synced()) {
    if (!Synced(task, shard, &placements_)) continue;
    SetHolders(shard, processes);
    changed = true;
    LogInfo("ps {} is backup of shard {} again", placements_[shard].backup, shard);
  }
  const bool taken = TakeHeld(task, {reply.serving().begin(), reply.serving().end()});
  if (taken) AddBackups(processes.present, copies_, &placements_);
  if (DropBackups(task, reply) || taken) return Change::kView;
  // No new view is needed, because the primary already knows that its backup is in sync. Only the
  // record must include the change.
  return changed ? Change::kRecord : Change::kNone;
}

// Handles a broken link between a primary and its backup while both tasks send heartbeats.
bool ShardAssignment::DropBackups(int task, const proto::BeatReply& reply) {
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

void ShardAssignment::UseView(const ServerProcesses& processes) {
  for (int s = 0; s < size(); ++s) SetHolders(s, processes);
}

// ---- Shards

std::vector<std::pair<int, int>> ShardAssignment::TakeUnserved(const Present& present,
                                                               MonotonicTime now) {
  std::vector<std::pair<int, int>> targets;
  Placements wanted = placements_;
  for (const auto& [shard, task] : ToRestore(placements_, present, copies_)) {
    if (!MustRestore(holders_[shard], unserved_since_[shard], rejoin_, now)) continue;
    if (!holders_[shard].empty())
      LogWarning("{} did not come back with shard {} within {:g} s (timeouts.rejoin)",
                 Describe(holders_[shard]), shard, Seconds(rejoin_));
    holders_[shard].clear();
    chief::Restored(shard, task, &wanted);
  }
  AddBackups(present, copies_, &wanted);
  for (int s = 0; s < size(); ++s) {
    if (placements_[s].primary >= 0) continue;
    if (wanted[s].primary >= 0) targets.emplace_back(s, wanted[s].primary);
    if (wanted[s].backup >= 0) targets.emplace_back(s, wanted[s].backup);
  }
  return targets;
}

void ShardAssignment::Restored(const std::vector<std::pair<int, int>>& targets,
                               const ServerProcesses& processes) {
  for (const auto& [shard, task] : targets) {
    if (placements_[shard].primary < 0)
      chief::Restored(shard, task, &placements_);
    else if (placements_[shard].primary != task)
      placements_[shard] = {placements_[shard].primary, task, true};
    SetHolders(shard, processes);
  }
}

std::vector<Holders> ShardAssignment::awaited() const {
  std::vector<Holders> awaited = holders_;
  for (int s = 0; s < size(); ++s)
    if (placements_[s].primary >= 0) awaited[s].clear();
  return awaited;
}

void ShardAssignment::Adopt(Placements placements, const ServerProcesses& processes) {
  placements_ = std::move(placements);
  UseView(processes);
  AddBackups(processes.present, copies_, &placements_);
}

}  // namespace muster::chief
