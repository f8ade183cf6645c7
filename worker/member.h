// A training member: one process's membership in a job, over its session with the coordinator.
//
// A Member is a state machine (worker/member_state.h) and one thread that keeps the session up,
// sends heartbeats, watches the chief and aborts communicators when the coordinator, or the chief's
// silence, ends their generation: not the job, whose next generation NextGeneration joins. The
// training loop calls Membership's methods. Every status that Member returns for a job that ended
// has this process's last line for a message (common/cluster/verdict.h): main prints it and exits
// with ExitCodeOf(status).
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
#include "common/rpc/channel.h"
#include "common/rpc/host.h"
#include "common/train/membership.h"
#include "worker/member_state.h"

namespace muster {

// What a planned fault (--fault) does to the session with the chief.
enum class SessionFault { kNone, kSilent, kBroken };

struct MemberOptions {
  std::string task;           // "worker:1"
  std::string chief_task;     // "chief:0", or "worker:0" in a cluster without a chief
  std::string chief_address;  // of the cluster spec
  // Elastic: a request to stop is one of this member alone, unless the coordinator says otherwise.
  bool may_leave = false;
  bool is_chief = false;  // this process runs the coordinator, which prints the roster itself
  std::string cluster_digest, cluster;  // compared at join
  std::string job;                      // resolved JSON, compared at join
  std::map<std::string, std::string> versions;
  int num_replicas = 1;
  std::string devices;       // for people
  MemberDevices held;        // compared at formation (task is not read)
  std::string data_address;  // ip:port where peers reach this process's DataListener
  Backend backend = Backend::kAuto;
  rpc::HostIdentity host = rpc::ThisHost();
  rpc::ChannelOptions channel;
  MemberTimeouts timeouts;
  std::string flight_folder;  // for records that do not reach the chief; empty: the system's
  // Makes one communicator for each local replica; FormGroup and MakeReplicaCommunicators behind
  // it (FormationOver below), or a test's own.
  std::function<absl::StatusOr<std::vector<std::unique_ptr<Communicator>>>(
      const GroupSpec& spec, const std::vector<int>& replicas_per_rank,
      const std::function<bool()>& aborted)>
      form;
  // Told once, on a Member's thread, when the job has ended: for a main that wants to end a
  // program that does not return.
  std::function<void(const Verdict&)> on_verdict;
  // Told before on_verdict where that is about this process alone: it was given up (it hangs), and
  // the job goes on. For the chief's own process, whose other parts must not end the job.
  std::function<void(const Verdict&)> on_given_up;
  // Told on a Member's thread: nothing was heard of the chief, the process `pid`, for
  // MemberTimeouts::heartbeat, whatever became of the connection; zero: it is there again.
  std::function<void(int64_t pid, Duration silence)> on_chief_silent;
  // Told once, on a Member's thread: the generation is over and the loop does not come back.
  std::function<void(const std::string& why)> on_stuck;
  // Asked ten times a second; empty: there is none. kSilent: nothing passes. kBroken, once: the
  // session ends.
  std::function<SessionFault()> session_fault;
};

class Member : public Membership {
 public:
  static std::unique_ptr<Member> Make(MemberOptions options);
  // ~Member leaves the session; a Member whose job has not ended is lost for the others.

  using Welcome = membership::Welcome;
  // Reaches the chief (any start order: names that do not resolve yet and refused connections are
  // tried again) and returns what it says. NextGeneration calls it too.
  virtual absl::StatusOr<Welcome> Join() = 0;
  // What the coordinator decided, once it has; also a lost chief. The story for a result.
  virtual std::optional<Verdict> verdict() const = 0;
  // Blocks until the generation that NextGeneration returned last is over, or the job has ended:
  // for a member that has no loop. OK: the job is done; Superseded: join the next generation
  // (NextGeneration), with all that this process holds; else the job's verdict.
  virtual absl::Status WaitOver() = 0;
  // Of this process, random.
  virtual uint64_t incarnation() const = 0;
  // The one line that this process prints last if the loop returned `result`: the verdict's, or,
  // where none was heard, "ROOT CAUSE: <own story>". "" for OK.
  virtual std::string FinalLine(const absl::Status& result) const = 0;
};

// For a process that fails before it has a Member (bad job file, unreadable data): tells the chief,
// so that the job's verdict names it. Tries again while the chief is not up, for `timeout`. OK: the
// chief has it. `try_again`: true where the job goes on and waits for another process instead.
struct EarlyFailure {
  std::string task, chief_address, cluster_digest;
  absl::Status failure;
  int64_t step = -1;
  Phase phase = Phase::kStarting;
  uint64_t incarnation = 0;  // 0: never joined
  rpc::ChannelOptions channel;
};
absl::Status ReportFailureTo(const EarlyFailure& report, Duration timeout,
                             const std::function<bool()>& give_up = nullptr,
                             bool* try_again = nullptr);

}  // namespace muster
