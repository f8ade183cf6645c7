// Computes which ranks of a generation have links to each other. The result depends only on the
// hosts of the ranks and on the algorithm, so all ranks compute the same topology. FormGroup opens
// and tests these links, and operations use no others. Internal.
#pragma once

#include <string>
#include <vector>

namespace muster::collective {

enum class Algorithm {
  kRing,          // One ring of all ranks.
  kSharedMemory,  // All ranks are on one host. Data needs no links.
  kHierarchical,  // Shared memory on each host, rings between hosts.
};

struct Topology {
  Algorithm algorithm = Algorithm::kRing;
  // The ranks of each host. The hosts are in the order of their first rank.
  std::vector<std::vector<int>> hosts;
  // The ring of all ranks, host by host, so that few neighbours are on different hosts. Neighbours
  // have a link even if no data uses the ring, because they watch each other.
  std::vector<int> ring;
  // Only for kHierarchical: the rings between hosts. Ring between[i] consists of the i-th rank of
  // each host. The number of rings is the smallest number of ranks on any host.
  std::vector<std::vector<int>> between;
  // The ranks to which each rank has a link, in ascending order. If a has a link to b, b has one to
  // a. A rank has at most two links for each of its rings. The links connect all ranks.
  std::vector<std::vector<int>> peers;

  bool data_needs_links() const { return algorithm != Algorithm::kSharedMemory; }
};

// Groups the ranks by host. `host_of` has the id of each rank's host.
std::vector<std::vector<int>> RanksByHost(const std::vector<std::string>& host_of);
Topology MakeTopology(std::vector<std::vector<int>> hosts, Algorithm algorithm);

}  // namespace muster::collective
