// Membership is the interface through which the training loop reaches the other members. A member
// is a process that trains. common/membership/ implements Membership with a session (a gRPC stream)
// to the coordinator, the part of the chief that watches all members. MakeLocalMembership returns
// an implementation for a single process.
//
// A replica is one device's copy of the model, with its own thread. A member has one or more
// replicas. Members have ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/phase.h"
#include "common/collective/communicator.h"

namespace muster {

// A period of training with fixed members. When a member is lost or joins, the generation ends and
// the coordinator forms a new one.
struct Generation {
  // True if the job ended before a generation formed. The other fields are then not set.
  bool job_done = false;
  uint64_t id = 0;
  std::string run_id;  // Identifies the run in messages and files.
  int rank = 0;        // The rank of this member.
  // The number of replicas of each member, indexed by rank.
  std::vector<int> replicas_per_rank;
  int replicas_on_host = 1;  // Replicas of all members on this host.
  // The rank of the member that has the newest state of the training. This member sends the state
  // to the other members.
  int owner = 0;
  // The number of completed steps in the newest state. -1 if no member has a state.
  int64_t owner_step = 0;
  // One communicator for each replica of this member. The rank of a communicator is the index of
  // its replica among all replicas of the generation. The loop owns the communicators. While a
  // Member aborts one, it keeps the communicator alive.
  std::vector<std::shared_ptr<collective::Communicator>> replicas;
  int world_size() const { return static_cast<int>(replicas_per_rank.size()); }
};

class Membership {
 public:
  virtual ~Membership() = default;
  // Joins the job, or joins it again after the end of a generation. Blocks until a generation is
  // formed. `last_step` is the newest step that this process has completed, or -1 if it has no
  // state. An error is the final status of the job, and the caller must end the loop.
  virtual absl::StatusOr<Generation> NextGeneration(int64_t last_step) = 0;
  // Thread-safe and cheap. Sets the phase (common/base/phase.h) and the step that this process's
  // heartbeats report after this call.
  virtual void SetPhase(Phase phase, int64_t step) = 0;
  // Called when a collective failed with the error `local`, such as a reset connection. Reports
  // `local` to the coordinator. Blocks until the coordinator says why the generation ended, or
  // until a deadline has passed. Returns the coordinator's reason, which says more than `local`.
  // Returns `local` after the deadline.
  virtual absl::Status Explain(const absl::Status& local) = 0;
  // Reports a failure of this process's own program or data. Must be the first method that is
  // called on this object after the failure. The final status of the job then names this failure,
  // and not a later error that this failure causes.
  virtual void ReportFailure(const absl::Status& failure) = 0;
  // Thread-safe. Called when this process receives a stop request (SIGTERM or SIGINT).
  virtual void RequestStop() = 0;
  // Returns true if RequestStop was called or the coordinator requests a stop. The loop calls this
  // method once a step.
  virtual bool StopRequested() const = 0;
  // Called when the loop has ended. `outcome` is OK at the end of training, or Preempted if all
  // replicas stopped on request. Reports `outcome` to the coordinator. Blocks until all members
  // have ended. Returns `outcome` if all members have the same outcome. Otherwise returns the final
  // status of the job.
  virtual absl::Status Finish(int64_t last_step, const absl::Status& outcome) = 0;
  // Called after Explain or Finish. Returns true if the job has ended. Returns false if only the
  // generation has ended. In that case, the caller calls NextGeneration.
  virtual bool JobEnded() const { return true; }
};

// Returns the membership of a single process without a coordinator, such as `muster-worker --job`
// without TF_CONFIG. `cuda_devices` has one device index for each replica, or is empty for replicas
// on the CPU. `timeout` limits the duration of each collective of the replicas.
std::unique_ptr<Membership> MakeLocalMembership(int num_replicas, Duration timeout,
                                                std::vector<int> cuda_devices = {});

}  // namespace muster
