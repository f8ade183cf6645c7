// Whom each rank of a generation is linked with, as a pure function of where the ranks run and of
// the algorithm they use. All ranks compute it alike; formation opens and tests these links, and
// operations use no others. Internal.
#pragma once

#include <string>
#include <vector>

namespace muster::collective {

enum class Algorithm {
  kRing,          // all data goes round one ring
  kSharedMemory,  // one host: data needs no link
  kHierarchical,  // shared memory on each host, rings between hosts
};

struct Topology {
  Algorithm algorithm = Algorithm::kRing;
  // Ranks by host, hosts in the order of their first rank.
  std::vector<std::vector<int>> hosts;
  // All ranks, host by host, so that it crosses from host to host as seldom as can be. Also where
  // no data takes this way its neighbours watch over each other.
  std::vector<int> ring;
  // kHierarchical: between[i] has the i-th rank of each host, for as many as every host has.
  std::vector<std::vector<int>> between;
  // By rank: whom it is linked with, in rising order. Symmetric and connected; at most two for each
  // ring that the rank belongs to.
  std::vector<std::vector<int>> peers;

  bool data_needs_links() const { return algorithm != Algorithm::kSharedMemory; }
};

// `host_of` names each rank's host.
std::vector<std::vector<int>> RanksByHost(const std::vector<std::string>& host_of);
Topology MakeTopology(std::vector<std::vector<int>> hosts, Algorithm algorithm);

}  // namespace muster::collective
