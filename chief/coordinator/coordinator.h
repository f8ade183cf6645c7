// The coordinator of a job. It holds the members' sessions, forms the generations and gives the
// verdict. The chief runs one; a Member (common/membership/member.h) in the same process trains.
// See docs/control_plane.md for the protocol and chief/decision/decision.h for the rules.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chief/coordinator/admission.h"
#include "chief/coordinator/member_events.h"
#include "chief/decision/decision.h"
#include "common/rpc/server.h"

namespace muster {

struct LostMember {
  TaskId task;
  int64_t pid = 0;
  std::string why;
  bool told = false;   // The process hangs, and was asked to exit.
  bool missed = true;  // The member was part of the current generation.
};

struct CoordinatorOptions {
  rpc::ServerOptions server;
  std::vector<grpc::Service*> services;  // Further services on the same port.
  std::vector<DeclaredMember> members;   // Indexed by rank.
  AdmissionOptions admission;            // Run id, term, cluster and job; all members must agree.
  // Writes the run id and the term of the next generations to the disk. The run id is that of a
  // member that holds state of the run if AdmissionOptions::fresh_run is set. The term is above all
  // that members have seen. No generation is formed before this returns OK. Called without locks,
  // on a thread of IdentityKeeper. Retried after a tick on failure; the job ends if the failure
  // persists.
  std::function<absl::Status(const std::string& run_id, uint32_t epoch)> keep_identity;
  // Called when a member that had joined is lost and another process may take its place. The
  // coordinator's lock is held, so it must not block.
  std::function<void(const LostMember& lost)> on_lost;
  // Called at the start and whenever `generation` rises. No generation above it was formed, by this
  // chief or an earlier one. The coordinator's lock is held, so it must not block.
  std::function<void(uint64_t generation)> on_newest;
  std::map<std::string, std::string> versions;  // Members with other versions cause a warning.
  MembershipOptions decision;
  // Receives the events of single members where members are independent
  // (chief/coordinator/member_events.h). Outlives this object.
  MemberEvents* events = nullptr;
  // Index in `members` of the member in this process, -1 if there is none.
  int own_member = 0;
  Duration roster_interval = std::chrono::seconds(10);
  Duration tick = std::chrono::milliseconds(100);  // Time between decisions when nothing happens.
  // Limit between the opening of a session and its Hello.
  Duration hello = std::chrono::seconds(5);
};

// Thread-safe.
class Coordinator {
 public:
  // Listens and starts to decide. Fails as rpc::Server::Start does.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(CoordinatorOptions options);
  virtual ~Coordinator() = default;  // Ends the sessions and the server.

  virtual int port() const = 0;
  // Blocks until the job has ended and its members have acknowledged that, or their deadline for it
  // has passed. MembershipOptions bounds every wait inside.
  virtual Verdict Wait() = 0;
  // Blocks until the job has ended, whether or not members know it.
  virtual Verdict WaitForEnd() = 0;
  // Ends the job with `verdict` unless it has already ended. For errors that the chief's own
  // process finds outside its Member: it was superseded, or the model_dir is gone.
  virtual void End(Verdict verdict) = 0;
  // Ends a job that was complete before it began. Each process that connects receives `message`.
  // Wait() returns once all declared members have received it, or after MembershipOptions::end. The
  // caller informs the chief's own process.
  virtual void EndFinished(const std::string& message) = 0;
  // States that the job resumes from the state after its last step. A member that does not connect
  // counts as having received its verdict. After MembershipOptions::end the remaining work is done
  // without it.
  virtual void GoOnWithLastStep() = 0;
  // Acts as if a member had received SIGTERM: all members stop at an agreed step.
  virtual void RequestStop() = 0;
};

}  // namespace muster
