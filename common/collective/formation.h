// Turns the processes of one generation into a Communicator.
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

// One process of a generation, as the coordinator announced it to all members.
struct GroupMember {
  std::string task;          // For messages, such as "worker:1".
  std::string host_id;       // Equal for members of one host (boot id and shared-memory namespace).
  std::string data_address;  // Address of its DataListener, such as "10.0.0.3:41234".
  int num_replicas = 1;
};

enum class Backend { kAuto, kNccl, kTcp, kSharedMemory, kHierarchical };

// The description of a generation that the coordinator sends to each member, with the choices of
// this host.
struct GroupSpec {
  uint64_t generation = 0;           // Unique within the run: (term of the chief << 32) | counter.
  int rank = 0;                      // Rank of this process.
  std::vector<GroupMember> members;  // By rank.
  std::string ticket;  // 16 random bytes. Connections without this secret are refused.
  Backend backend = Backend::kAuto;
  Duration formation_timeout = std::chrono::seconds(20);
  // Time that the vote on shared memory may take beyond formation_timeout. Within it, waiting
  // members give up one after the other. The member next to a silent one gives up first, and so the
  // error names the silent member.
  Duration vote_grace = std::chrono::seconds(2);
  Duration operation_timeout = std::chrono::seconds(60);
  // Cuts a link when the peer's host has acknowledged nothing for this long while data is in flight
  // to it.
  Duration link_timeout = std::chrono::seconds(10);
  // Spin while waiting for peers. Set it only where the replicas of this host do not outnumber its
  // cores.
  bool spin = false;
  // Execute operations on a thread of the communicator (needs a free core). Otherwise Work::Wait
  // executes them.
  bool progress_thread = true;
  // Records the operations of the communicators. May be null.
  std::shared_ptr<FlightRecorder> recorder;
};

// Connects the pairs of members that the algorithm links (topology.h) and tests each link with a
// small exchange. The result has one rank for each process.
//
// An error names the link that did not come up: "worker 1 <-> worker 2 (to 10.0.0.4:5123):
// connection refused". A member that fails sends its reason to its peers, and they forward it.
// `aborted` is polled at least every 100 ms. When it returns true, the formation ends with
// Superseded.
absl::StatusOr<std::unique_ptr<Communicator>> FormGroup(const GroupSpec& spec,
                                                        transport::DataListener& listener,
                                                        const std::function<bool()>& aborted);

// Returns one communicator for each local replica of this process. Replicas are ranked over the
// whole group, without gaps, by process rank and then by device. With one replica in every process,
// the result is the group itself. The returned objects share the ownership of `group`. Each is used
// by its own replica's thread. Aborting one aborts all.
std::vector<std::unique_ptr<Communicator>> MakeReplicaCommunicators(
    std::unique_ptr<Communicator> group, const std::vector<int>& replicas_per_rank,
    Duration timeout);

// Connects `size` threads of this process over plain memory.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(int size, Duration timeout);

}  // namespace muster
