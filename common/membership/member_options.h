// Builds MemberOptions from the cluster and the job, for every role that is a member.
#pragma once

#include <functional>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/membership/member.h"
#include "common/process/supervisor.h"

namespace muster::membership {

// Returns the options of the channel to the chief.
rpc::ChannelOptions ChannelToChief(const ClusterConfig& cluster);
// Returns the options that do not depend on the role. The caller sets data_address, replicas,
// devices, versions, form and on_verdict. REQUIRES: a cluster with a chief.
MemberOptions MemberOptionsOf(const ClusterConfig& cluster, const Job& job);
// Sets MemberOptions::on_chief_silent to report a silent chief to the supervisor. The supervisor
// may end the chief's process and start another one.
void ReportSilentChief(Supervisor* supervisor, MemberOptions* options);

// Called before a task other than the chief joins. Blocks while the chief cannot be reached
// (common/membership/late_start.h). Returns true if the run in model_dir is finished, so there is
// no job to join. The message of an error is this process's last line.
absl::StatusOr<bool> FinishedWithoutChief(const ClusterConfig& cluster, const Job& job,
                                          const std::function<bool()>& give_up);

// Called by a process that fails before it has a Member. Reports the failure to the chief, unless
// this process is the chief or `give_up` returns true. Returns a status with the process's last
// line.
absl::Status FailEarly(const ClusterConfig& cluster, const Job& job, const absl::Status& failure,
                       const std::function<bool()>& give_up);

}  // namespace muster::membership
