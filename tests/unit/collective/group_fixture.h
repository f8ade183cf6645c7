// Makes groups of ranks inside one process, for every backend that this machine can run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"
#include "common/collective/group/formation.h"
#include "common/transport/listener/data_listener.h"

namespace muster::testing {

// The ticket of groups in this process and in those that it forks. The name of a segment in
// /dev/shm depends on the ticket, so a test that runs at the same time needs another one.
extern const std::string kTicket;

struct GroupOptions {
  Duration timeout = std::chrono::minutes(2);
  uint64_t generation = 1;
};

// The ranks of one group, and the listeners that they need.
struct TestGroup {
  std::vector<std::unique_ptr<transport::DataListener>> listeners;
  std::vector<std::unique_ptr<collective::Communicator>> ranks;
  collective::Communicator& operator[](int rank) { return *ranks[rank]; }
  int size() const { return static_cast<int>(ranks.size()); }
};

// "threads", "tcp", "tcp_progress", "shared_memory", "shared_memory_progress",
// "shared_memory_spin", "hierarchical", "hierarchical_uneven", "replicas", "replicas_tcp".
const std::vector<std::string>& BackendNames();
TestGroup MakeGroup(const std::string& backend, int size, GroupOptions options = {});
// Makes a group with one member for each entry of `hosts`. Members with an equal entry are on the
// same host.
TestGroup MakeGroupOn(const std::vector<std::string>& hosts, collective::Backend backend,
                      GroupOptions options = {});
// Forms a group with one member per listener. Returns the communicators by rank. A failure fails
// the test and leaves null.
std::vector<std::unique_ptr<collective::Communicator>> Form(
    const collective::GroupSpec& spec,
    const std::vector<std::unique_ptr<transport::DataListener>>& listeners);

// Returns the names of ways to distribute ranks over hosts: all on one host, one per host, in
// blocks, alternating, or uneven.
const std::vector<std::string>& LayoutNames();
// Returns the host of each of `size` ranks.
std::vector<std::string> HostsOf(const std::string& layout, int size);

std::unique_ptr<transport::DataListener> MakeListener();
std::vector<std::unique_ptr<transport::DataListener>> MakeListeners(int count);
// Makes listeners with TLS. Listener i has the certificate of "worker:<i>", all of one authority.
std::vector<std::unique_ptr<transport::DataListener>> MakeSecureListeners(int count);
// Returns a spec with members "worker:0", "worker:1", ... at these listeners, all on one host.
collective::GroupSpec MakeSpec(
    const std::vector<std::unique_ptr<transport::DataListener>>& listeners,
    GroupOptions options = {});

// Runs `body` for each rank on its own thread, and waits for all threads.
void OnEachRank(int size, const std::function<void(int rank)>& body);

}  // namespace muster::testing
