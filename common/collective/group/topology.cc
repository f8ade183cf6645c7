#include "common/collective/group/topology.h"

#include <algorithm>
#include <map>
#include <utility>

namespace muster::collective {
namespace {

void LinkRing(const std::vector<int>& ring, std::vector<std::vector<int>>* peers) {
  for (size_t i = 0; i < ring.size(); ++i) {
    const int a = ring[i], b = ring[(i + 1) % ring.size()];
    if (a == b) continue;
    (*peers)[a].push_back(b);
    (*peers)[b].push_back(a);
  }
}

}  // namespace

std::vector<std::vector<int>> RanksByHost(const std::vector<std::string>& host_of) {
  std::vector<std::vector<int>> hosts;
  std::map<std::string, size_t> index;
  for (size_t r = 0; r < host_of.size(); ++r) {
    const auto [at, added] = index.emplace(host_of[r], hosts.size());
    if (added) hosts.emplace_back();
    hosts[at->second].push_back(static_cast<int>(r));
  }
  return hosts;
}

Topology MakeTopology(std::vector<std::vector<int>> hosts, Algorithm algorithm) {
  Topology topology{.algorithm = algorithm, .hosts = std::move(hosts)};
  size_t fewest = topology.hosts.empty() ? 0 : topology.hosts[0].size();
  for (const std::vector<int>& ranks : topology.hosts) {
    topology.ring.insert(topology.ring.end(), ranks.begin(), ranks.end());
    fewest = std::min(fewest, ranks.size());
  }
  topology.peers.resize(topology.ring.size());
  LinkRing(topology.ring, &topology.peers);
  for (size_t i = 0; algorithm == Algorithm::kHierarchical && i < fewest; ++i) {
    std::vector<int>& ring = topology.between.emplace_back();
    for (const std::vector<int>& ranks : topology.hosts) ring.push_back(ranks[i]);
    LinkRing(ring, &topology.peers);
  }
  for (std::vector<int>& peers : topology.peers) {
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  }
  return topology;
}

}  // namespace muster::collective
