// The links of each rank of a generation, as a pure function of where the ranks run and of their
// algorithm. All ranks compute the same result. The formation opens and tests these links, and
// operations use no others. Internal.
#pragma once

#include <string>
#include <vector>

namespace muster::collective {

enum class Algorithm {
  kRing,          // All data travels around one ring.
  kSharedMemory,  // One host: data needs no link.
  kHierarchical,  // Shared memory on each host, rings between hosts.
};

struct Topology {
  Algorithm algorithm = Algorithm::kRing;
  // Ranks by host, with hosts in the order of their first rank.
  std::vector<std::vector<int>> hosts;
  // All ranks, host by host, so that the ring crosses between hosts as rarely as possible.
  // Neighbours watch each other also where no data uses the ring.
  std::vector<int> ring;
  // For kHierarchical: between[i] has the i-th rank of each host. Its size is the smallest number
  // of ranks on any host.
  std::vector<std::vector<int>> between;
  // By rank: the ranks that it is linked with, in rising order. Symmetric and connected, with at
  // most two links for each ring that the rank belongs to.
  std::vector<std::vector<int>> peers;

  bool data_needs_links() const { return algorithm != Algorithm::kSharedMemory; }
};

// `host_of` names each rank's host.
std::vector<std::vector<int>> RanksByHost(const std::vector<std::string>& host_of);
Topology MakeTopology(std::vector<std::vector<int>> hosts, Algorithm algorithm);

}  // namespace muster::collective
