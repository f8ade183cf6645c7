// The Coordinator supervises the members of a job. The members are the tasks that take part in
// training: the chief and the workers, or in a parameter-server job the workers and the ps tasks.
// The chief runs one Coordinator. Each member has a session, which is a gRPC stream to the
// Coordinator. The Coordinator forms generations (periods in which a fixed set of members trains
// together) and decides the verdict (the outcome of the job). The chief's process has two halves:
// one half runs the Coordinator, and the other half trains. If the chief's task is a member, the
// training half joins as a Member (common/membership/member.h). See docs/control_plane.md for the
// protocol and chief/decision/decision.h for the rules.
#pragma once

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chief/coordinator/admission/admission.h"
#include "chief/coordinator/member_events.h"
#include "chief/decision/decision.h"
#include "common/rpc/server/server.h"
#include "proto/telemetry.pb.h"

namespace muster::proto {
class StatusReply;
}  // namespace muster::proto

namespace muster::chief {

struct MemberLossReport {
  TaskId task;
  int64_t pid = 0;
  std::string why;
  // True if the Coordinator asked the process to exit, because the process makes no progress.
  bool asked_to_exit = false;
  // True if the loss affects training, because the member was in the current generation (in
  // JobStage::kJoining: in the last generation). False, for example, for a spare.
  bool missed = true;
};

struct CoordinatorOptions {
  rpc::ServerOptions server;
  std::vector<grpc::Service*> services;  // Additional services on the same port.
  std::vector<DeclaredMember> members;   // Indexed by rank.
  AdmissionOptions admission;            // Run id, term, cluster and job.
  // Writes the run id and the chief's term (AdmissionOptions::term) to the disk. The Coordinator
  // calls this function before it forms a generation with a new run id or term. It forms the
  // generation only after the function has returned OK. If model_dir has no record of a run
  // (AdmissionOptions::fresh_run), the chief adopts the run of the first member that holds state.
  // `run_id` is then the id of this run. Called without locks, on the thread of IdentityWriter.
  // After an error the Coordinator retries at the next tick. If the errors last for
  // MembershipOptions::join, the Coordinator ends the job.
  std::function<absl::Status(const std::string& run_id, uint32_t term)> record_identity;
  //
  // The next four functions must not block, because they are called with the Coordinator's lock
  // held.
  //
  // Called when the process of a member is lost and another process may replace it. Not called for
  // a member that leaves because it was asked to stop. Not called if a new process has already
  // taken the place of the lost process.
  std::function<void(const MemberLossReport& lost)> on_lost;
  // Called at the start, when a generation is formed, and when the term rises. `generation` is at
  // least the number of each generation that this chief knows.
  std::function<void(uint64_t generation)> on_newest;
  // Called with `straggler` true when the other members begin to wait for `member` in each step
  // (pace.h). Called with `straggler` false when the other members no longer wait.
  std::function<void(const TaskId& member, bool straggler)> on_straggler;
  // Called for events of the run: a task joined or was lost, a generation started, the job ended.
  // The event's age is not set.
  std::function<void(const proto::RunEvent& event)> on_event;
  //
  // Adds the progress of training to the reply of the Status RPC. Called without locks.
  std::function<void(proto::StatusReply* reply)> describe;
  // Versions of libraries, keyed by name. The Coordinator logs a warning if a member has another
  // version.
  std::map<std::string, std::string> versions;
  MembershipOptions decision;
  // Receives each admission and loss of a member of a parameter-server job. May be null. Not owned.
  MemberEvents* events = nullptr;
  // Index in `members` of the member in this process, -1 if there is none.
  int own_member = 0;
  // Time between two log lines about missing members.
  Duration roster_interval = std::chrono::seconds(10);
  Duration tick = std::chrono::milliseconds(100);  // The longest time between two decisions.
  // Timeout for the Hello, the first message of a session.
  Duration hello = std::chrono::seconds(5);
};

// Thread-safe.
class Coordinator {
 public:
  // Starts the gRPC server and the Coordinator's thread. Returns the errors of rpc::Server::Start.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(CoordinatorOptions options);
  virtual ~Coordinator() = default;  // Ends the sessions and the gRPC server.

  virtual int port() const = 0;
  // Returns the reply of the Status RPC.
  virtual proto::StatusReply Describe() = 0;
  // Blocks until the job has ended and its members have acknowledged the verdict. Waits for the
  // acknowledgements at most MembershipOptions::end after a success, and at most
  // MembershipOptions::failure_ack_timeout after a failure.
  virtual Verdict Wait() = 0;
  // Blocks until the job has ended. Does not wait for the members' acknowledgements.
  virtual Verdict WaitForEnd() = 0;
  // Ends the job with `verdict`. Has no effect if the job has already ended. Called for errors of
  // the chief that its training half does not report, such as a lost model_dir or another chief
  // that has replaced this one.
  virtual void End(Verdict verdict) = 0;
  // Ends a job that was completed under an earlier chief process. Each process that connects
  // receives `message`. Wait() returns once all declared members have received `message`, or after
  // MembershipOptions::end. The caller informs the training half of the chief's process.
  virtual void EndFinished(const std::string& message) = 0;
  // Called if the job resumes from the state after its last step. The remaining work, such as the
  // test pass, does not need all members. If some declared members do not join within
  // MembershipOptions::end, the other members do this work without the missing members.
  virtual void EndAfterLastStep() = 0;
  // Asks all members to stop at a step that they agree on. A SIGTERM at any member has the same
  // effect.
  virtual void RequestStop() = 0;
  // Returns the last measurements that the members have sent, keyed by task. Omits lost members.
  virtual std::map<std::string, proto::TaskStats> Stats() = 0;
};

}  // namespace muster::chief
