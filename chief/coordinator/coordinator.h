// The Coordinator of a job keeps the members' sessions, forms generations and decides the verdict.
// The chief runs one Coordinator. The training half of the chief's process joins it as a Member
// (common/membership/member.h). See docs/control_plane.md for the protocol and
// chief/decision/decision.h for the rules.
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
#include "proto/telemetry.pb.h"

namespace muster::proto {
class StatusReply;
}  // namespace muster::proto

namespace muster::chief {

struct MemberLossReport {
  TaskId task;
  int64_t pid = 0;
  std::string why;
  bool asked_to_exit = false;  // The process hangs, and the coordinator asked it to exit.
  bool missed = true;          // The member was part of the current generation.
};

struct CoordinatorOptions {
  rpc::ServerOptions server;
  std::vector<grpc::Service*> services;  // Additional services on the same port.
  std::vector<DeclaredMember> members;   // Indexed by rank.
  AdmissionOptions admission;            // Run id, term, cluster and job.
  // Writes the run id and the term of the next generations to the disk. The coordinator forms no
  // generation before this returns OK. With AdmissionOptions::fresh_run, the run id may come from a
  // member that holds state. The term is higher than every term that a member has seen. Called
  // without locks, on the thread of IdentityWriter. After an error the coordinator retries at the
  // next tick. If errors persist, it ends the job.
  std::function<absl::Status(const std::string& run_id, uint32_t term)> record_identity;
  // Called when a member that had joined is lost and another process may replace it. Must not
  // block, because the caller holds the coordinator's lock.
  std::function<void(const MemberLossReport& lost)> on_lost;
  // Called at the start and whenever the newest generation changes. `generation` is an upper bound
  // of all generations that this chief or an earlier one has formed. Must not block, because the
  // caller holds the coordinator's lock.
  std::function<void(uint64_t generation)> on_newest;
  // Called when other members begin to wait for `member` in each step, and when they no longer do
  // (pace.h). Must not block, because the caller holds the coordinator's lock.
  std::function<void(const TaskId& member, bool straggler)> on_straggler;
  // Called for events of the run: a task joined or was lost, a generation started, the job ended.
  // The age is not set. Must not block, because the caller holds the coordinator's lock.
  std::function<void(const proto::RunEvent& event)> on_event;
  // Adds the state of training to the reply of Status. Called without locks.
  std::function<void(proto::StatusReply* reply)> describe;
  std::map<std::string, std::string> versions;  // Logs a warning if a member's differ.
  MembershipOptions decision;
  // Receives events about single members in a parameter-server job. May be null. Not owned.
  MemberEvents* events = nullptr;
  // Index in `members` of the member in this process, -1 if there is none.
  int own_member = 0;
  Duration roster_interval = std::chrono::seconds(10);
  Duration tick = std::chrono::milliseconds(100);  // Longest time between two decisions.
  // Timeout for the Hello on a new session.
  Duration hello = std::chrono::seconds(5);
};

// Thread-safe.
class Coordinator {
 public:
  // Starts the server and the coordinator's thread. Returns the errors of rpc::Server::Start.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(CoordinatorOptions options);
  virtual ~Coordinator() = default;  // Ends the sessions and the server.

  virtual int port() const = 0;
  // Returns the reply of the Status RPC.
  virtual proto::StatusReply Describe() = 0;
  // Blocks until the job has ended and its members have acknowledged the verdict, or their deadline
  // has passed. MembershipOptions sets the deadlines.
  virtual Verdict Wait() = 0;
  // Blocks until the job has ended. Does not wait for the members' acknowledgements.
  virtual Verdict WaitForEnd() = 0;
  // Ends the job with `verdict`, unless the job has already ended. For errors that the chief finds
  // outside its Member, such as a lost model_dir or another chief that superseded this one.
  virtual void End(Verdict verdict) = 0;
  // Ends a job that an earlier start had completed. Each process that connects receives `message`.
  // Wait() returns once all declared members have received it, or after MembershipOptions::end. The
  // caller informs the chief's own process.
  virtual void EndFinished(const std::string& message) = 0;
  // Called if the job resumes from the state after its last step. A member that does not connect
  // then needs no verdict. After MembershipOptions::end the remaining work is done without that
  // member.
  virtual void EndAfterLastStep() = 0;
  // Stops all members at an agreed step, as SIGTERM at any member does.
  virtual void RequestStop() = 0;
  // Returns the last measurements of each connected member, keyed by task.
  virtual std::map<std::string, proto::TaskStats> Stats() = 0;
};

}  // namespace muster::chief
