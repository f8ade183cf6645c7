// A parameter server's whole life, from its arguments and environment to its exit code: the body of
// muster-ps. It opens its gRPC server on its address of the cluster, joins the job as a member,
// serves until the verdict, also while the chief is lost and replaced, and exits with the job's
// code. Needs no LibTorch. Call once, from main, before any thread exists.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/faults.h"
#include "common/cluster/cluster_config.h"
#include "common/train/job.h"
#include "common/transport/data_listener.h"
#include "ps/service.h"

namespace muster {

// This process's membership in the job. worker/ has it for all members; main.cc brings it.
class PsMembership {
 public:
  virtual ~PsMembership() = default;
  // Joins, again where the chief was lost, and returns at the job's end. OK: the job is done. The
  // message of an error is this process's last line.
  virtual absl::Status Stay() = 0;
  // Any thread.
  virtual void RequestStop() = 0;
  virtual void ReportFailure(const absl::Status& failure) = 0;
  // Updates applied so far, for heartbeats.
  virtual void SetUpdates(int64_t updates) = 0;
};

struct PsMembershipOptions {
  const ClusterConfig& cluster;
  const Job& job;
  std::string data_address;
  std::map<std::string, std::string> versions;
  // Told once, on another thread, when the job has ended.
  std::function<void(const absl::Status& result)> on_verdict;
  std::string termination_log;  // for a process that has to be ended
};

struct PsParts {
  std::function<std::unique_ptr<PsMembership>(const PsMembershipOptions&)> join;
  // Tells the chief of a failure before there is a membership, unless it is to give up, and words
  // the last line.
  std::function<absl::Status(const ClusterConfig&, const Job&, const absl::Status& failure,
                             const std::function<bool()>& give_up)>
      fail_early;
  // Waits for a chief that is not there; true: there is no run to join any more.
  std::function<absl::StatusOr<bool>(const ClusterConfig&, const Job&,
                                     const std::function<bool()>& give_up)>
      finished_without_chief;
  // What --fault does to data connections and to the session; called before either is there.
  std::function<void(Faults*, transport::ListenerOptions*)> adapt;
  std::string termination_log;
};

int RunPs(int argc, char** argv, const PsParts& parts);

}  // namespace muster
