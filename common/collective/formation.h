// Forms a Communicator from the processes of one generation.
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

// One process of a generation. The coordinator sends these to all members.
struct GroupMember {
  std::string task;          // "worker:1", for messages.
  std::string host_id;       // HostIdentity::id. Equal for members that can share memory.
  std::string data_address;  // The address of its DataListener ("10.0.0.3:41234").
  int num_replicas = 1;
};

enum class Backend { kAuto, kNccl, kTcp, kSharedMemory, kHierarchical };

// A generation as the coordinator describes it, and this process's options for it.
struct GroupSpec {
  uint64_t generation = 0;           // Unique within the run: (term of the chief << 32) | counter.
  int rank = 0;                      // The rank of this process.
  std::vector<GroupMember> members;  // Indexed by rank.
  std::string ticket;                // A secret of 16 random bytes that each connection must show.
  Backend backend = Backend::kAuto;
  Duration formation_timeout = std::chrono::seconds(20);
  // The time beyond formation_timeout that members wait for each other in the vote on shared
  // memory. Members give up one after the other in this time. The neighbour of a silent member
  // gives up first, so the error names the silent member.
  Duration vote_grace = std::chrono::seconds(2);
  Duration operation_timeout = std::chrono::seconds(60);
  // A link is lost if data is in flight on it, and the peer's host has acknowledged nothing for
  // this time.
  Duration link_timeout = std::chrono::seconds(10);
  // If true, waits for peers spin. Only for hosts with at least one core for each replica.
  bool spin = false;
  // If true, a thread of the communicator runs the operations, which needs a free core. Otherwise
  // Work::Wait runs them.
  bool progress_thread = true;
  // Receives the operations of the communicators. May be null.
  std::shared_ptr<FlightRecorder> recorder;
  // Counts the bytes that pass through shared memory. May be null.
  std::shared_ptr<transport::Traffic> shared_memory;
};

// Opens the links between members that the algorithm needs (topology.h), and tests each link with a
// small exchange. Blocks until all links work. Returns a communicator in which each process is one
// rank.
//
// An error names the link that failed: "worker 1 <-> worker 2 (to 10.0.0.4:5123): connection
// refused". A member that fails sends its error to its peers, and they forward it. `aborted` is
// polled at least every 100 ms. Once it returns true, FormGroup returns Superseded.
absl::StatusOr<std::unique_ptr<Communicator>> FormGroup(const GroupSpec& spec,
                                                        transport::DataListener& listener,
                                                        const std::function<bool()>& aborted);

// Returns one communicator for each replica of this process. Ranks count the replicas of the whole
// group: by process rank, then by device. If every process has one replica, returns `group` itself.
// The communicators share the ownership of `group`. Each replica's thread uses its own
// communicator. Aborting one of them aborts all.
std::vector<std::unique_ptr<Communicator>> MakeReplicaCommunicators(
    std::unique_ptr<Communicator> group, const std::vector<int>& replicas_per_rank,
    Duration timeout);

// Returns communicators for `size` threads of this process, which use the memory of the process.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(int size, Duration timeout);

}  // namespace muster::collective
