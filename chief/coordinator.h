// The coordinator of a job: the members' sessions, the generations, the verdict. The chief runs
// one; a Member (worker/member.h) in the same process trains. docs/control_plane.md tells the
// protocol, common/cluster/decision.h the rules.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chief/admission.h"
#include "chief/member_events.h"
#include "common/cluster/decision.h"
#include "common/rpc/server.h"

namespace muster {

struct LostMember {
  TaskId task;
  int64_t pid = 0;
  std::string why;
  bool told = false;   // it is there, hangs, and was told to end
  bool missed = true;  // by a generation, which it was in
};

struct CoordinatorOptions {
  rpc::ServerOptions server;
  std::vector<grpc::Service*> services;  // more of them on the same port
  std::vector<DeclaredMember> members;   // by rank
  AdmissionOptions admission;  // run id, epoch, cluster and job: the truth for all members
  // Puts on the disk what generations are about to have: the run (that of a member which holds
  // state of it, where AdmissionOptions::fresh_run), and the epoch (above all that members have
  // seen). None is formed before it has returned OK. Called without locks, on the coordinator's
  // thread; again after a tick where it fails, and the job ends if that goes on.
  std::function<absl::Status(const std::string& run_id, uint32_t epoch)> keep_identity;
  // A member that had joined is lost, and another process may take its place. Called with the
  // coordinator's lock held: it must not block.
  std::function<void(const LostMember& lost)> on_lost;
  // No generation above that one has been formed, by this chief or those before it: at the start,
  // and when that rises. Called likewise.
  std::function<void(uint64_t generation)> on_newest;
  std::map<std::string, std::string> versions;  // a member's other ones are worth a warning
  MembershipOptions decision;
  // Told of single members where they are independent (chief/member_events.h); outlives this.
  MemberEvents* events = nullptr;
  // The member that is of this process, an index of `members`; -1: none is.
  int own_member = 0;
  Duration roster_interval = std::chrono::seconds(10);
  Duration tick = std::chrono::milliseconds(100);  // between decisions when nothing happens
  Duration hello = std::chrono::seconds(5);        // from a session's opening to its Hello
};

// All methods may be called from any thread.
class Coordinator {
 public:
  // Listens and starts to decide. Fails as rpc::Server::Start does.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(CoordinatorOptions options);
  virtual ~Coordinator() = default;  // Ends the sessions and the server.

  virtual int port() const = 0;
  // Blocks until the job has ended and its members have acknowledged that, or did not within their
  // deadline. Every wait inside is bounded by MembershipOptions.
  virtual Verdict Wait() = 0;
  // Blocks until the job has ended, whoever has heard of it.
  virtual Verdict WaitForEnd() = 0;
  // Ends the job with `verdict` unless it has ended before. For what the chief's own process finds
  // out besides its Member: superseded, model_dir gone.
  virtual void End(Verdict verdict) = 0;
  // Ends a job that was finished before it began, with `message` for everybody: whoever comes is
  // told, and Wait() returns once all declared members have been, or after MembershipOptions::end.
  // The chief's own process is told by its caller.
  virtual void EndFinished(const std::string& message) = 0;
  // What training goes on with is the state after the job's last step: whoever does not come has
  // its verdict, and after MembershipOptions::end the rest of the work is done without.
  virtual void GoOnWithLastStep() = 0;
  // As if a member had received SIGTERM: all are told to stop at an agreed step.
  virtual void RequestStop() = 0;
};

}  // namespace muster
