// How the processes of one generation become a Communicator.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/collective/communicator.h"

namespace muster {

class FlightRecorder;
namespace transport {
class DataListener;
}

// One process (member) of a generation, as the coordinator made it known to all.
struct GroupMember {
  std::string task;          // "worker:1", for messages
  std::string host_id;       // equal on the same host (boot id and shared-memory namespace)
  std::string data_address;  // "10.0.0.3:41234", its DataListener
  int num_replicas = 1;
};

enum class Backend { kAuto, kNccl, kTcp, kSharedMemory, kHierarchical };

// What a generation's coordinator hands to each member, plus host-local choices.
struct GroupSpec {
  uint64_t generation = 0;           // unique within the run: (chief epoch << 32) | counter
  int rank = 0;                      // this process
  std::vector<GroupMember> members;  // by rank
  std::string
      ticket;  // secret of this generation, 16 random bytes: connections without it are refused
  Backend backend = Backend::kAuto;
  Duration formation_timeout = std::chrono::seconds(20);
  // Beyond it, who waits in the vote on shared memory gives up one after the other, so that the one
  // next to a silent member is the first to name it.
  Duration vote_grace = std::chrono::seconds(2);
  Duration operation_timeout = std::chrono::seconds(60);
  // Of a host's silence while something is under way to it: the link is cut.
  Duration link_timeout = std::chrono::seconds(10);
  // Spin while waiting for peers: only where replicas of this host do not outnumber its cores.
  bool spin = false;
  // Carry operations out on a thread of the communicator's own (a core is free), else inside
  // Work::Wait.
  bool progress_thread = true;
  std::shared_ptr<FlightRecorder> recorder;  // what the communicators record with; may be null
};

// A failed formation, with the link that did not come up: "worker 1 <-> worker 2 (to
// 10.0.0.4:5123): connection refused". The pairs of members that the algorithm links (topology.h)
// are connected and tested by a small exchange; who fails tells its peers why, and they theirs. The
// result has one rank for each process. `aborted` is polled at least every 100 ms;
// true ends the formation with Superseded.
absl::StatusOr<std::unique_ptr<Communicator>> FormGroup(const GroupSpec& spec,
                                                        transport::DataListener& listener,
                                                        const std::function<bool()>& aborted);

// Communicators for the replicas of this process: one for each local replica, replica-ranked over
// the whole group (densely, in rank then device order). With one replica everywhere this is the
// group itself. The returned objects share the ownership of `group`; each is used by its own
// replica's thread. Aborting one aborts all.
std::vector<std::unique_ptr<Communicator>> MakeReplicaCommunicators(
    std::unique_ptr<Communicator> group, const std::vector<int>& replicas_per_rank,
    Duration timeout);

// Plain memory between `size` threads of this process.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(int size, Duration timeout);

}  // namespace muster
