// A training member: one process's membership in a job, over its session with the coordinator.
//
// A Member is a state machine (common/membership/member_state.h) and one thread. The thread
// maintains the session, sends heartbeats and watches the chief. It aborts communicators when the
// coordinator, or the chief's silence, ends their generation. The job does not end then:
// NextGeneration joins its next generation. The training loop calls Membership's methods. For a job
// that has ended, the message of each returned status is this process's last line
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

// The effect of a planned fault (--fault) on the session with the chief.
enum class SessionFault { kNone, kSilent, kBroken };

struct MemberOptions {
  std::string task;           // "worker:1".
  std::string chief_task;     // "chief:0", or "worker:0" in a cluster without a chief.
  std::string chief_address;  // The chief's address in the cluster spec.
  // Elastic: a stop request concerns only this member, unless the coordinator says otherwise.
  bool may_leave = false;
  bool is_chief = false;  // This process runs the coordinator, which prints the roster itself.
  std::string cluster_digest, cluster;  // Compared at join.
  std::string job;                      // Resolved JSON, compared at join.
  std::map<std::string, std::string> versions;
  int num_replicas = 1;
  std::string devices;       // The devices, for people.
  MemberDevices held;        // Compared at formation (`task` is not read).
  std::string data_address;  // ip:port at which peers reach this process's DataListener.
  Backend backend = Backend::kAuto;
  rpc::HostIdentity host = rpc::ThisHost();
  rpc::ChannelOptions channel;
  MemberTimeouts timeouts;
  std::string flight_folder;  // The folder for records that do not reach the chief; empty: the
                              // system's temporary folder.
  // Makes one communicator per local replica. FormationOver below, which calls FormGroup and
  // MakeReplicaCommunicators, or a test's function.
  std::function<absl::StatusOr<std::vector<std::unique_ptr<Communicator>>>(
      const GroupSpec& spec, const std::vector<int>& replicas_per_rank,
      const std::function<bool()>& aborted)>
      form;
  // Called once on a Member's thread when the job has ended. main can use it to end a program that
  // does not return.
  std::function<void(const Verdict&)> on_verdict;
  // Called before on_verdict if only this process was given up because it hangs, and the job
  // continues. For the chief's process, whose other parts must not end the job.
  std::function<void(const Verdict&)> on_given_up;
  // Called on a Member's thread when nothing was heard of the chief, process `pid`, for
  // MemberTimeouts::heartbeat, whatever the state of the connection. `silence` is zero once it is
  // heard again.
  std::function<void(int64_t pid, Duration silence)> on_chief_silent;
  // Called once on a Member's thread when the generation is over and the loop does not return.
  std::function<void(const std::string& why)> on_stuck;
  // Called ten times per second; empty: no faults. kSilent: nothing passes. kBroken, returned once:
  // the session ends.
  std::function<SessionFault()> session_fault;
};

class Member : public Membership {
 public:
  static std::unique_ptr<Member> Make(MemberOptions options);
  // ~Member leaves the session. If the job has not ended, the others lose this member.

  using Welcome = membership::Welcome;
  // Connects to the chief and returns its welcome. Retries names that do not resolve yet and
  // refused connections, so tasks may start in any order. NextGeneration also calls it.
  virtual absl::StatusOr<Welcome> Join() = 0;
  // Returns the coordinator's verdict once there is one, also after the loss of the chief. For the
  // result's description.
  virtual std::optional<Verdict> verdict() const = 0;
  // For a member without a loop. Blocks until the generation that NextGeneration last returned is
  // over, or the job has ended. Returns OK if the job is done. Returns Superseded if the process is
  // to call NextGeneration again with its state. Returns the job's verdict otherwise.
  virtual absl::Status WaitOver() = 0;
  // Random, one per process.
  virtual uint64_t incarnation() const = 0;
  // Returns the last line that this process prints if the loop returned `result`. It is the
  // verdict's, or "ROOT CAUSE: <own description>" if no verdict was received. "" for OK.
  virtual std::string FinalLine(const absl::Status& result) const = 0;
};

// For a process that fails before it has a Member (invalid job file, unreadable data). Reports the
// failure to the chief, so that the job's verdict names it. Retries for `timeout` while the chief
// is not up. Returns OK once the chief has received it. Sets `try_again` if the job continues and
// waits for another process.
struct EarlyFailure {
  std::string task, chief_address, cluster_digest;
  absl::Status failure;
  int64_t step = -1;
  Phase phase = Phase::kStarting;
  uint64_t incarnation = 0;  // 0: never joined.
  rpc::ChannelOptions channel;
};
absl::Status ReportFailureTo(const EarlyFailure& report, Duration timeout,
                             const std::function<bool()>& give_up = nullptr,
                             bool* try_again = nullptr);

}  // namespace muster
