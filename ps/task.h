// Runs a parameter server from its arguments and environment to its exit code: the body of
// muster-ps. It opens its gRPC server on its address of the cluster and joins the job as a member.
// It serves until the verdict, also while the chief is lost and replaced, and exits with the job's
// code. Needs no LibTorch. Called once, by main, before any thread exists.
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

namespace muster {

// This process's membership in the job. worker/ implements it for all members; main.cc passes it
// in.
class PsMembership {
 public:
  virtual ~PsMembership() = default;
  // Joins, and joins again if the chief was lost. Returns at the job's end, OK if the job is done.
  // The message of an error is this process's last line.
  virtual absl::Status Stay() = 0;
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
  // Called once, on another thread, when the job has ended.
  std::function<void(const absl::Status& result)> on_verdict;
  std::string termination_log;  // The file for the last line of a process that must be ended.
};

struct PsParts {
  std::function<std::unique_ptr<PsMembership>(const PsMembershipOptions&)> join;
  // Reports a failure to the chief before there is a membership, unless `give_up` returns true.
  // Returns the status with the last line.
  std::function<absl::Status(const ClusterConfig&, const Job&, const absl::Status& failure,
                             const std::function<bool()>& give_up)>
      fail_early;
  // Waits for a chief that is not there. Returns true if there is no run to join any more.
  std::function<absl::StatusOr<bool>(const ClusterConfig&, const Job&,
                                     const std::function<bool()>& give_up)>
      finished_without_chief;
  // Applies --fault to data connections and the session. Called before either exists.
  std::function<void(Faults*, transport::ListenerOptions*)> adapt;
  std::string termination_log;
};

int RunPs(int argc, char** argv, const PsParts& parts);

}  // namespace muster
