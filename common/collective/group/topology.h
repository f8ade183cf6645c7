// Computes which ranks have links to each other. A link is one or two connections between two
// ranks. The result depends only on the hosts of the ranks and on the algorithm, so all ranks
// compute the same topology. FormGroup (formation.h) opens and tests these links. Operations use no
// other links. Internal.
#pragma once

#include <string>
#include <vector>

namespace muster::collective {

enum class Algorithm {
  kRing,          // One ring of all ranks.
  kSharedMemory,  // All ranks are on one host. Links carry no data.
  kHierarchical,  // Shared memory on each host, rings between hosts.
};

struct Topology {
  Algorithm algorithm = Algorithm::kRing;
  // The ranks of each host. The hosts are in the order of their lowest ranks.
  std::vector<std::vector<int>> hosts;
  // The ring of all ranks, host by host, so that few neighbours are on different hosts. Neighbours
  // watch each other, so they have a link even if the link carries no data.
  std::vector<int> ring;
  // Only for kHierarchical: the rings between hosts. Ring between[i] consists of the i-th rank of
  // each host. The number of rings is the number of ranks on the host with the fewest ranks.
  std::vector<std::vector<int>> between;
  // The ranks to which each rank has a link, in ascending order. Indexed by rank. If rank a has a
  // link to rank b, then b has a link to a. A rank has at most two links for each ring that
  // contains the rank. A path of links leads from every rank to every other rank.
  std::vector<std::vector<int>> peers;

  bool data_needs_links() const { return algorithm != Algorithm::kSharedMemory; }
};

// Groups the ranks by host. `host_of` has the id of each rank's host.
std::vector<std::vector<int>> RanksByHost(const std::vector<std::string>& host_of);
Topology MakeTopology(std::vector<std::vector<int>> hosts, Algorithm algorithm);

}  // namespace muster::collective
