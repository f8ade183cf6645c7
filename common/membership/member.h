// One process's membership in a job. The training loop calls the methods of Membership.
//
// A Member has a state machine (common/membership/member_state.h) and one thread. The thread
// maintains the session with the coordinator, sends heartbeats and watches the chief. A generation
// ends when the coordinator ends it or the chief is silent. The thread then aborts the generation's
// communicators. The job continues, and NextGeneration joins its next generation.
//
// Once the job has ended, the message of each returned status is this process's last line
// (common/cluster/verdict.h). main prints it and exits with ExitCodeOf(status).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/device_clash.h"
#include "common/cluster/verdict.h"
#include "common/collective/formation.h"
#include "common/membership/member_state.h"
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

// The effect of a planned fault (--fault) on the session with the chief.
enum class SessionFault { kNone, kSilent, kBroken };

struct MemberOptions {
  std::string task;           // "worker:1".
  std::string chief_task;     // "chief:0", or "worker:0" in a cluster without a chief.
  std::string chief_address;  // The chief's address in the cluster spec.
  // The job is elastic: a stop request to this process stops only this member, unless the
  // coordinator stops all.
  bool may_leave = false;
  bool is_chief = false;  // This process runs the coordinator, which prints the roster itself.
  std::string cluster_digest, cluster;  // The coordinator compares them at join.
  std::string job;                      // Resolved JSON. The coordinator compares it at join.
  std::map<std::string, std::string> versions;
  int num_replicas = 1;
  std::string devices;         // Text for people, such as "cuda:0,1".
  MemberDevices held_devices;  // The coordinator compares them at formation. `task` is not used.
  std::string data_address;    // ip:port at which peers reach this process's DataListener.
  collective::Backend backend = collective::Backend::kAuto;
  rpc::HostIdentity host = rpc::ThisHost();
  rpc::ChannelOptions channel;
  MemberTimeouts timeouts;
  // The folder for flight records that do not reach the chief. Empty: the system's temporary
  // folder.
  std::string flight_folder;
  // Makes one communicator per local replica. Blocks. In production this is FormationOver
  // (worker/formation.h).
  std::function<absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>>(
      const collective::GroupSpec& spec, const std::vector<int>& replicas_per_rank,
      const std::function<bool()>& aborted)>
      form;
  // Called once on a Member's thread when the job has ended. main can then end a program that does
  // not return.
  std::function<void(const Verdict&)> on_verdict;
  // Called before on_verdict if the coordinator gave up only this process, because it hangs, and
  // the job continues. The chief's process uses it, because its other parts must then not end the
  // job.
  std::function<void(const Verdict&)> on_given_up;
  // Called on a Member's thread when the chief, whose process ID is `pid`, was silent for
  // MemberTimeouts::heartbeat, even if the connection is up. Called again with zero `silence` when
  // the chief is heard again.
  std::function<void(int64_t pid, Duration silence)> on_chief_silent;
  // Called once on a Member's thread when the generation is over and the loop does not return.
  std::function<void(const std::string& why)> on_stuck;
  // Called ten times per second. Empty: no faults. While it returns kSilent, the session passes no
  // messages. When it returns kBroken, the session ends.
  std::function<SessionFault()> session_fault;
  // Sets this task's measurements for a heartbeat. Called about once a second. May be null.
  std::function<void(proto::TaskStats*)> stats;
  // The spans of this process, for `muster trace`. Null: this process takes part in no trace.
  std::shared_ptr<SpanRecorder> spans;
};

class Member : public Membership {
 public:
  static std::unique_ptr<Member> Make(MemberOptions options);
  // ~Member ends the session. If the job has not ended, the coordinator regards this member as
  // lost.

  using Welcome = membership::Welcome;
  // Connects to the chief and returns its welcome. Blocks. Retries while the chief's name does not
  // resolve or the connection is refused, so tasks may start in any order. NextGeneration also
  // calls Join.
  virtual absl::StatusOr<Welcome> Join() = 0;
  // Returns the verdict on the job, nullopt before there is one.
  virtual std::optional<Verdict> verdict() const = 0;
  // Called by a member without a training loop. Blocks until the generation of the last
  // NextGeneration is over or the job has ended. Returns OK if the job is done. Returns Superseded
  // if the caller must call NextGeneration again with its state. Otherwise returns the job's
  // verdict.
  virtual absl::Status WaitOver() = 0;
  // Returns a random number that identifies this process.
  virtual uint64_t incarnation() const = 0;
  // Returns the last line that this process must print after the loop returned `result`: the
  // verdict's line or, without a verdict, "ROOT CAUSE: <own description>". Returns "" for OK, and
  // the message of a Preempted `result` without a verdict.
  virtual std::string FinalLine(const absl::Status& result) const = 0;
};

// A failure of a process that has no Member yet, such as an invalid job file or unreadable data.
struct EarlyFailure {
  std::string task, chief_address, cluster_digest;
  absl::Status failure;
  int64_t step = -1;
  Phase phase = Phase::kStarting;
  uint64_t incarnation = 0;  // 0: the process never joined.
  rpc::ChannelOptions channel;
};
// Reports the failure to the chief, so that the job's verdict names it. Retries for `timeout` while
// the chief is not up. Returns OK once the chief has received the report. Sets `try_again` if the
// job continues and waits for another process of this task.
absl::Status ReportFailureTo(const EarlyFailure& report, Duration timeout,
                             const std::function<bool()>& give_up = nullptr,
                             bool* try_again = nullptr);

}  // namespace muster::membership
