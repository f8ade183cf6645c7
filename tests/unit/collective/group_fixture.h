// Groups of ranks inside one process: every backend that this machine can run, by name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/collective/formation.h"
#include "common/transport/data_listener.h"

namespace muster::testing {

struct GroupOptions {
  Duration timeout = std::chrono::seconds(20);
  uint64_t generation = 1;
};

// The ranks of one group, with what keeps them alive.
struct TestGroup {
  std::vector<std::unique_ptr<transport::DataListener>> listeners;
  std::vector<std::unique_ptr<Communicator>> ranks;
  Communicator& operator[](int rank) { return *ranks[rank]; }
  int size() const { return static_cast<int>(ranks.size()); }
};

// "threads", "tcp", "tcp_progress", "shared_memory", "shared_memory_progress",
// "shared_memory_spin", "hierarchical", "hierarchical_uneven", "replicas", "replicas_tcp".
const std::vector<std::string>& BackendNames();
TestGroup MakeGroup(const std::string& backend, int size, GroupOptions options = {});
// One process for each of `hosts`, which name where it runs.
TestGroup MakeGroupOn(const std::vector<std::string>& hosts, Backend backend,
                      GroupOptions options = {});
// The rank of each member that forms; what failed is null, and is expected not to.
std::vector<std::unique_ptr<Communicator>> Form(
    const GroupSpec& spec, const std::vector<std::unique_ptr<transport::DataListener>>& listeners);

// Ways in which `size` ranks may lie on hosts: all on one, one on each, in blocks, in turn, uneven.
const std::vector<std::string>& LayoutNames();
std::vector<std::string> HostsOf(const std::string& layout, int size);

std::unique_ptr<transport::DataListener> MakeListener();
std::vector<std::unique_ptr<transport::DataListener>> MakeListeners(int count);
// TLS, each as "worker:<i>" of one authority.
std::vector<std::unique_ptr<transport::DataListener>> MakeSecureListeners(int count);
// Members "worker:0".. at these listeners, all on one host.
GroupSpec MakeSpec(const std::vector<std::unique_ptr<transport::DataListener>>& listeners,
                   GroupOptions options = {});

// Runs `body` for each rank on a thread of its own and joins them.
void OnEachRank(int size, const std::function<void(int rank)>& body);

}  // namespace muster::testing
