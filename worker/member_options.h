// What a Member is told by the cluster and the job, the same in every role that is a member.
#pragma once

#include <functional>

#include "common/cluster/cluster_config.h"
#include "common/telemetry/supervisor.h"
#include "common/train/job.h"
#include "worker/member.h"

namespace muster {

// To the chief.
rpc::ChannelOptions ChannelToChief(const ClusterConfig& cluster);
// All but what is the role's own: data_address, replicas and devices, versions, form, on_verdict.
// REQUIRES: a cluster with a chief.
MemberOptions MemberOptionsOf(const ClusterConfig& cluster, const Job& job);
// A chief that is silent is named to whoever may end its process and start another one.
void TellOfSilentChief(Supervisor* supervisor, MemberOptions* options);

// Before a task other than the chief joins: waits for a chief that is not there (late_start.h).
// True: model_dir says that the run is finished, and there is nothing to join. The message of an
// error is this process's last line.
absl::StatusOr<bool> FinishedWithoutChief(const ClusterConfig& cluster, const Job& job,
                                          const std::function<bool()>& give_up);

// For a process that fails before it has a Member: tells the chief, where it is not the chief
// itself and as long as it is not to give up, and words its last line.
absl::Status FailEarly(const ClusterConfig& cluster, const Job& job, const absl::Status& failure,
                       const std::function<bool()>& give_up);

}  // namespace muster
