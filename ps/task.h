// The body of muster-ps: RunPs runs a parameter server and returns the process's exit code. The
// server opens its gRPC port at its address in the cluster spec and joins the job as a member. It
// serves until the job's verdict, even while the chief is lost or replaced. Needs no LibTorch. main
// calls RunPs once, before any other thread exists.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/faults/faults.h"
#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/transport/data_listener.h"
#include "ps/service.h"

namespace muster::proto {
class TaskStats;
}

namespace muster::ps {

// This process's membership in the job. ps/main.cc implements it with a Member
// (common/membership/member.h).
class PsMembership {
 public:
  virtual ~PsMembership() = default;
  // Joins, and joins again after a loss of the chief. Blocks until the job has ended. Returns OK if
  // the job is done. The message of an error is this process's last line.
  virtual absl::Status WaitForVerdict() = 0;
  // Thread-safe.
  virtual void RequestStop() = 0;
  virtual void ReportFailure(const absl::Status& failure) = 0;
  // Sets the number of updates applied so far, for heartbeats.
  virtual void SetUpdates(int64_t updates) = 0;
};

struct PsMembershipOptions {
  const ClusterConfig& cluster;
  const Job& job;
  std::string data_address;
  std::map<std::string, std::string> versions;
  // Called once when the job has ended, on another thread than RunPs.
  std::function<void(const absl::Status& result)> on_verdict;
  // A file that also receives the last line of a process that is ended because it hangs. Empty:
  // none.
  std::string termination_log;
  // MemberOptions::stats.
  std::function<void(proto::TaskStats*)> stats;
  std::shared_ptr<SpanRecorder> spans;  // The spans of this process, for `muster trace`.
};

struct PsParts {
  std::function<std::unique_ptr<PsMembership>(const PsMembershipOptions&)> join;
  // Called if this process fails before it has a membership. Reports the failure to the chief,
  // until `give_up` returns true. Returns a status with this process's last line.
  std::function<absl::Status(const ClusterConfig&, const Job&, const absl::Status& failure,
                             const std::function<bool()>& give_up)>
      fail_early;
  // Blocks while the chief cannot be reached. Returns true if the run is finished, so that there is
  // nothing to join.
  std::function<absl::StatusOr<bool>(const ClusterConfig&, const Job&,
                                     const std::function<bool()>& give_up)>
      finished_without_chief;
  // Applies --fault to data connections and the session. Called before the first of them is opened.
  std::function<void(Faults*, transport::ListenerOptions*)> adapt;
  std::string termination_log;
};

int RunPs(int argc, char** argv, const PsParts& parts);

}  // namespace muster::ps
