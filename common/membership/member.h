// The membership of one process in a job. The process is a member: a task that takes part in
// training. The training loop calls the methods of the base class Membership
// (common/train/membership.h).
//
// The coordinator is the part of the chief that watches all members. A session is the member's gRPC
// stream to the coordinator. A generation is a period of training with fixed members. The verdict
// says how and why the job ended (common/cluster/verdict.h).
//
// A Member has a state machine (common/membership/state_machine/member_state.h) and one thread. The
// thread opens sessions, sends heartbeats and watches the chief. A generation is over when the
// coordinator ends it or the chief is lost. The Member then aborts the communicators of the
// generation, which wakes the training loop. The loop calls NextGeneration to join the next
// generation.
//
// After the end of the job, the message of each returned error is the line that this process must
// print last. main prints this line and exits with ExitCodeOf(status).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/device_clash.h"
#include "common/cluster/verdict.h"
#include "common/collective/group/formation.h"
#include "common/membership/state_machine/member_state.h"
#include "common/rpc/channel.h"
#include "common/rpc/host.h"
#include "common/train/membership.h"

namespace muster {
class SpanRecorder;
namespace proto {
class TaskStats;
}
}  // namespace muster

namespace muster::membership {

// The effect of a planned fault (--fault) on the session.
enum class SessionFault {
  kNone,
  kSilent,  // The session passes no messages.
  kBroken   // The session ends.
};

struct MemberOptions {
  std::string task;           // For example "worker:1".
  std::string chief_task;     // "chief:0", or "worker:0" in a cluster without a chief.
  std::string chief_address;  // The chief's address in the cluster spec.
  // The effect of a stop request (SIGTERM) to this process. True: only this member leaves, and the
  // other members continue. False: all members stop.
  bool may_leave = false;
  bool is_chief = false;  // True if this process runs the coordinator.
  // The coordinator refuses a member whose cluster, job or versions differ from the coordinator's.
  std::string cluster_digest, cluster;
  std::string job;  // The job as JSON, with default values.
  std::map<std::string, std::string> versions;
  int num_replicas = 1;
  std::string devices;  // A text for people, such as "cuda:0,1".
  // The devices of this process. The coordinator and each member compare the devices of all members
  // (common/cluster/device_clash.h). MemberDevices::task is not used.
  MemberDevices held_devices;
  std::string data_address;  // ip:port at which other members reach this process's DataListener.
  rpc::HostIdentity host = rpc::ThisHost();
  rpc::ChannelOptions channel;
  MemberTimeouts timeouts;
  // The folder for flight records (the last events of this process) that do not reach the chief.
  // Empty: the system's temporary folder.
  std::string flight_folder;
  // Makes the communicators of a generation: one for each replica (copy of the model on one device)
  // of this process. Blocks. Returns early with an error if `aborted` returns true. Production code
  // sets `form` to FormationOver (worker/formation.h).
  std::function<absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>>(
      const collective::GroupSpec& spec, const std::vector<int>& replicas_per_rank,
      const std::function<bool()>& aborted)>
      form;
  // The Member's thread calls the next five functions. Each of them may be null.
  //
  // Called once, when this process has received the verdict. main can then end a program that does
  // not return.
  std::function<void(const Verdict&)> on_verdict;
  // Called before on_verdict if the job continues without this process. The coordinator has offered
  // this process a generation before, but now refuses the process. For example, the process made no
  // progress. Even in this case, the chief's process must continue to run the coordinator.
  std::function<void(const Verdict&)> on_given_up;
  // Called when the chief has sent no message for MemberTimeouts::heartbeat. `pid` is the process
  // ID of the chief. Called again, with a `silence` of zero, when the next message of the chief
  // arrives.
  std::function<void(int64_t pid, Duration silence)> on_chief_silent;
  // Called once if the training loop does not return from a generation that is over.
  std::function<void(const std::string& why)> on_stuck;
  // Returns the planned fault that is in effect. Called at least ten times per second.
  std::function<SessionFault()> session_fault;
  // Fills in this task's measurements for a heartbeat. Called about once a second, with the
  // Member's mutex held. May be null.
  std::function<void(proto::TaskStats*)> stats;
  // Records spans for `muster trace`. Null: this process takes part in no trace.
  std::shared_ptr<SpanRecorder> spans;
};

class Member : public Membership {
 public:
  // The destructor of the result ends the session. If the job has not ended, the coordinator
  // regards this member as lost.
  static std::unique_ptr<Member> Make(MemberOptions options);

  // Connects to the chief and returns the chief's answer. Blocks. Retries while the chief cannot be
  // reached, so tasks may start in any order. A process that does not need the answer may call
  // NextGeneration without Join.
  virtual absl::StatusOr<JoinReply> Join() = 0;
  // Returns the verdict. Returns nullopt while the job continues.
  virtual std::optional<Verdict> verdict() const = 0;
  // Called by a member without a training loop. Blocks until the generation that NextGeneration
  // returned is over, or the job has ended. Returns OK if the job has succeeded, and the verdict as
  // an error if the job has failed. Otherwise the generation is over: returns Superseded, and the
  // caller must call NextGeneration again.
  virtual absl::Status WaitOver() = 0;
  // Returns a random number that identifies this process.
  virtual uint64_t incarnation() const = 0;
  // Returns the last line that this process must print. `result` is the result of the training
  // loop. If `result` is OK, returns "". Otherwise, if the verdict is an error, returns the
  // verdict's line. Otherwise, if `result` is Preempted, returns the message of `result`. In all
  // other cases, returns "ROOT CAUSE: <description of `result`>".
  virtual std::string FinalLine(const absl::Status& result) const = 0;
};

// A failure that a process reports to the chief. The process may have no Member yet. Examples are
// an invalid job file and unreadable data.
struct EarlyFailure {
  std::string task, chief_address, cluster_digest;
  absl::Status failure;
  int64_t step = -1;
  Phase phase = Phase::kStarting;
  uint64_t incarnation = 0;  // Member::incarnation(). 0: the process never joined.
  rpc::ChannelOptions channel;
};
// Reports the failure to the chief, so that the verdict names the failure. If the chief cannot be
// reached, retries until `timeout` has passed or `give_up` returns true, and then returns an error.
// Returns OK if the chief has accepted the report. If the chief has refused the report, returns
// Superseded with the chief's reason. After a refusal, *try_again is true if the job continues and
// waits for another process of this task.
absl::Status ReportFailureTo(const EarlyFailure& report, Duration timeout,
                             const std::function<bool()>& give_up = nullptr,
                             bool* try_again = nullptr);

}  // namespace muster::membership
