// The body of muster-ps. RunPs runs a parameter server and returns the process's exit code. The
// server opens its gRPC port at its address in the cluster spec and joins the job as a member, a
// task that takes part in training. The server runs until the chief sends the job's verdict, the
// result of the job. The server continues while the chief is lost or replaced. Needs no LibTorch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/faults/faults.h"
#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/transport/listener/data_listener.h"
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
  // Joins the job. Joins again when a new chief has replaced a lost chief. Blocks until the job has
  // ended. Returns OK if the job has completed. This process must print the message of an error as
  // its last line.
  virtual absl::Status WaitForVerdict() = 0;
  // Asks the chief to stop the job. Thread-safe.
  virtual void RequestStop() = 0;
  // Reports to the chief that this task has failed.
  virtual void ReportFailure(const absl::Status& failure) = 0;
  // Sets the number of applied updates, which the heartbeats of this process report.
  virtual void SetUpdates(int64_t updates) = 0;
};

struct PsMembershipOptions {
  const ClusterConfig& cluster;
  const Job& job;
  std::string data_address;
  std::map<std::string, std::string> versions;
  // Called once when the job has ended, on another thread than RunPs.
  std::function<void(const absl::Status& result)> on_verdict;
  // If this process hangs, it ends itself and also writes its last line to this file. Empty: no
  // file.
  std::string termination_log;
  // Sets the measurements of this task that heartbeats report.
  std::function<void(proto::TaskStats*)> stats;
  std::shared_ptr<SpanRecorder> spans;  // The spans of this process, for `muster trace`.
};

// Functions that ps/main.cc supplies.
struct PsParts {
  std::function<std::unique_ptr<PsMembership>(const PsMembershipOptions&)> join;
  // Called if this process fails before it has a membership. Tries to report the failure to the
  // chief until `give_up` returns true. Returns an error. This process must print the message of
  // this error as its last line.
  std::function<absl::Status(const ClusterConfig&, const Job&, const absl::Status& failure,
                             const std::function<bool()>& give_up)>
      fail_early;
  // Called before this process joins. Blocks while the chief's host refuses connections. Returns
  // true if the run in model_dir is finished. In that case, this process must not join. Returns
  // false as soon as a connection is not refused. Returns an error after at most timeouts.join, or
  // if `give_up` returns true.
  std::function<absl::StatusOr<bool>(const ClusterConfig&, const Job&,
                                     const std::function<bool()>& give_up)>
      finished_without_chief;
  // Applies the planned faults of --fault to data connections, and to the session, which is the
  // stream to the chief. Called before any of these connections is opened.
  std::function<void(Faults*, transport::ListenerOptions*)> adapt;
  // Path of a file, such as Kubernetes' terminationMessagePath. If this process ends with an error,
  // it also writes the error to this file. Empty: no file.
  std::string termination_log;
};

// main calls RunPs once, before any other thread exists.
int RunPs(int argc, char** argv, const PsParts& parts);

}  // namespace muster::ps
