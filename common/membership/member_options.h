// Builds MemberOptions from the cluster and the job, in the same way for every role that is a
// member.
#pragma once

#include <functional>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/membership/member.h"
#include "common/process/supervisor.h"

namespace muster {

// Returns the options of the channel to the chief.
rpc::ChannelOptions ChannelToChief(const ClusterConfig& cluster);
// Returns all options except those of the role: data_address, replicas and devices, versions, form,
// on_verdict. REQUIRES: a cluster with a chief.
MemberOptions MemberOptionsOf(const ClusterConfig& cluster, const Job& job);
// Reports a silent chief to the supervisor, which may end its process and start another one.
void TellOfSilentChief(Supervisor* supervisor, MemberOptions* options);

// Called before a task other than the chief joins. Waits for a chief that is not there
// (late_start.h). Returns true if model_dir says that the run is finished, so that there is nothing
// to join. The message of an error is this process's last line.
absl::StatusOr<bool> FinishedWithoutChief(const ClusterConfig& cluster, const Job& job,
                                          const std::function<bool()>& give_up);

// For a process that fails before it has a Member. Informs the chief, unless this process is the
// chief or `give_up` returns true. Returns the status with the process's last line.
absl::Status FailEarly(const ClusterConfig& cluster, const Job& job, const absl::Status& failure,
                       const std::function<bool()>& give_up);

}  // namespace muster
