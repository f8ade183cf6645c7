// Forms a Communicator between the members of one generation. A generation is a period of training
// with fixed members.
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
struct Traffic;
}  // namespace transport
}  // namespace muster

namespace muster::collective {

// One member of a generation. The chief's coordinator sends the list of members to every member.
struct GroupMember {
  std::string task;  // "worker:1", for messages.
  // The HostIdentity::id of the member's host. Equal for members that can share memory.
  std::string host_id;
  std::string data_address;  // The address of the member's DataListener ("10.0.0.3:41234").
  int num_replicas = 1;
};

enum class Backend { kAuto, kNccl, kTcp, kSharedMemory, kHierarchical };

// A generation as the coordinator describes it, and this process's options for the generation.
struct GroupSpec {
  // The generation's id, unique within the run: (term << 32) | counter. The term is a number of the
  // chief, above the terms of all earlier chiefs of the run.
  uint64_t generation = 0;
  int rank = 0;                      // The rank of this process.
  std::vector<GroupMember> members;  // Indexed by rank.
  // A secret of 16 random bytes. A process sends the ticket on each connection that it opens, and
  // the process at the other end checks the ticket.
  std::string ticket;
  Backend backend = Backend::kAuto;
  Duration formation_timeout = std::chrono::seconds(20);
  // The members vote on whether all of them can use shared memory. The vote goes around a ring of
  // the members. A member waits for the vote of its neighbour until formation_timeout and a part of
  // `vote_grace` have passed. The part grows with the member's position in the ring. The neighbour
  // of a silent member therefore gives up first, and the error names the silent member.
  Duration vote_grace = std::chrono::seconds(2);
  Duration operation_timeout = std::chrono::seconds(60);
  // A link is lost if it has data in flight, and the peer's host has not acknowledged any data for
  // this time.
  Duration link_timeout = std::chrono::seconds(10);
  // If true, a thread that waits for a peer polls for some time before it sleeps. Only for hosts
  // with at least one core for each replica.
  bool spin = false;
  // If true, a thread of the communicator runs the operations. The thread needs a free core. If
  // false, Work::Wait runs the operations.
  bool progress_thread = true;
  // Records the operations of the communicators, for `muster explain`. May be null.
  std::shared_ptr<FlightRecorder> recorder;
  // Counts the bytes that pass through shared memory. May be null.
  std::shared_ptr<transport::Traffic> shared_memory;
};

// Opens the links that the algorithm needs (topology.h), and tests each link with a small exchange.
// A link is one or two connections between two members. Blocks until all links work. Returns a
// communicator in which each process is one rank.
//
// An error names the link that failed: "worker 1 <-> worker 2 (to 10.0.0.4:5123): connection
// refused". A member that fails sends its error to its peers, and the peers forward the error.
// FormGroup polls `aborted` at least every 100 ms, and returns Superseded once `aborted` returns
// true.
absl::StatusOr<std::unique_ptr<Communicator>> FormGroup(const GroupSpec& spec,
                                                        transport::DataListener& listener,
                                                        const std::function<bool()>& aborted);

// Returns one communicator for each replica of this process. The ranks of each communicator are the
// replicas of all processes, in the order of the processes' ranks. The replicas of one process are
// in the order of their devices. `replicas_per_rank` has the number of replicas of each process. If
// every process has one replica, returns `group` itself. The communicators share the ownership of
// `group`. Each replica's thread uses its own communicator. Aborting one of the communicators
// aborts all of them.
std::vector<std::unique_ptr<Communicator>> MakeReplicaCommunicators(
    std::unique_ptr<Communicator> group, const std::vector<int>& replicas_per_rank,
    Duration timeout);

// Returns communicators for `size` threads of this process. The threads access each other's buffers
// directly.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(int size, Duration timeout);

}  // namespace muster::collective
