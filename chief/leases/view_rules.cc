#include "chief/leases/view_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace muster::chief {
namespace {

// Returns the tasks for a shard in order of preference.
std::vector<int> Homes(int shard, int servers, int replicas) {
  std::vector<int> homes = {shard};
  if (replicas > 1 && servers > 1) homes.push_back((shard + 1) % servers);
  return homes;
}

}  // namespace

void LoseServer(int task, Placements* placements) {
  for (ShardPlacement& shard : *placements) {
    if (shard.primary == task) {
      shard = {shard.in_sync ? shard.backup : -1, -1, false};
    } else if (shard.backup == task) {
      shard.backup = -1;
      shard.in_sync = false;
    }
  }
}

bool MustRestore(const Holders& holders, MonotonicTime since, Duration patience,
                 MonotonicTime now) {
  return holders.empty() || now - since >= patience;
}

std::vector<std::pair<int, int>> ToRestore(const Placements& placements, const Present& present,
                                           int replicas) {
  std::vector<std::pair<int, int>> restore;
  const int servers = static_cast<int>(placements.size());
  for (int shard = 0; shard < servers; ++shard) {
    if (placements[shard].primary >= 0) continue;
    for (const int home : Homes(shard, servers, replicas)) {
      if (!present.contains(home)) continue;
      restore.emplace_back(shard, home);
      break;
    }
  }
  return restore;
}

void Restored(int shard, int task, Placements* placements) {
  (*placements)[shard] = {task, -1, false};
}

bool AddBackups(const Present& present, int replicas, Placements* placements) {
  bool changed = false;
  const int servers = static_cast<int>(placements->size());
  for (int s = 0; s < servers; ++s) {
    ShardPlacement& shard = (*placements)[s];
    if (replicas < 2 || shard.primary < 0 || shard.backup >= 0) continue;
    for (const int home : Homes(s, servers, replicas)) {
      if (home == shard.primary || !present.contains(home)) continue;
      shard.backup = home;
      shard.in_sync = false;
      changed = true;
      break;
    }
  }
  return changed;
}

bool Synced(int primary, int s, Placements* placements) {
  if (s < 0 || s >= static_cast<int>(placements->size())) return false;
  ShardPlacement& shard = (*placements)[s];
  if (shard.primary != primary || shard.backup < 0 || shard.in_sync) return false;
  shard.in_sync = true;
  return true;
}

bool CanDropBackup(int primary, int s, Placements* placements) {
  if (s < 0 || s >= static_cast<int>(placements->size())) return false;
  ShardPlacement& shard = (*placements)[s];
  if (shard.primary != primary || shard.backup < 0) return false;
  shard.in_sync = false;
  return true;
}

Placements AdoptPlacements(const Placements& record, const std::vector<std::set<int>>& serving) {
  Placements placements = record;
  const auto holds = [&](int task, size_t shard) {
    return task >= 0 && task < static_cast<int>(serving.size()) &&
           serving[task].contains(static_cast<int>(shard));
  };
  for (size_t s = 0; s < placements.size(); ++s) {
    ShardPlacement& shard = placements[s];
    if (!holds(shard.backup, s) || !shard.in_sync) shard = {shard.primary, -1, false};
    if (!holds(shard.primary, s)) shard = {shard.in_sync ? shard.backup : -1, -1, false};
  }
  return placements;
}

bool Complete(const Placements& placements) {
  return std::all_of(placements.begin(), placements.end(),
                     [](const ShardPlacement& shard) { return shard.primary >= 0; });
}

std::string Describe(const Placements& placements) {
  std::string text;
  for (size_t s = 0; s < placements.size(); ++s) {
    const ShardPlacement& shard = placements[s];
    text += fmt::format("{}shard {} ", text.empty() ? "" : "; ", s);
    text += shard.primary < 0 ? "nowhere" : fmt::format("on ps {}", shard.primary);
    if (shard.backup >= 0)
      text += fmt::format(", backup {}ps {}", shard.in_sync ? "" : "to be ", shard.backup);
  }
  return text;
}

std::string Describe(const Holders& holders) {
  std::string text;
  for (const auto& [task, incarnation] : holders)
    text += fmt::format("{}ps {}", text.empty() ? "" : " or ", task);
  return text;
}

}  // namespace muster::chief
