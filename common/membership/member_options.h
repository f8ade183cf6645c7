// Functions that each member calls at its start. A member is a task that takes part in training:
// the chief, a worker, or a ps task.
#pragma once

#include <functional>

#include "common/cluster/cluster_config.h"
#include "common/job/job.h"
#include "common/membership/member.h"
#include "common/process/supervisor.h"

namespace muster::membership {

// Returns the options of the channel to the chief.
rpc::ChannelOptions ChannelToChief(const ClusterConfig& cluster);
// Returns options with the fields that do not depend on the role. The caller sets the other fields:
// data_address, num_replicas, devices, versions, form and on_verdict. REQUIRES: the cluster has a
// chief.
MemberOptions MemberOptionsOf(const ClusterConfig& cluster, const Job& job);
// Sets MemberOptions::on_chief_silent to a function that reports a silent chief to the supervisor.
// The supervisor is the process that starts tasks (common/process/supervisor.h). The supervisor may
// end the chief's process and start a new one.
void ReportSilentChief(Supervisor* supervisor, MemberOptions* options);

// Called before a task other than the chief joins. Blocks while the chief's host refuses
// connections (common/membership/late_start.h). Returns true if the run in model_dir is finished.
// The task must not join in that case. The message of an error is the line that this process must
// print last.
absl::StatusOr<bool> FinishedWithoutChief(const ClusterConfig& cluster, const Job& job,
                                          const std::function<bool()>& give_up);

// Called by a process that fails before it has a Member. A process other than the chief reports the
// failure to the chief. If the chief cannot be reached, FailEarly retries for a limited time, or
// until `give_up` returns true. Returns an error whose message is the line that this process must
// print last.
absl::Status FailEarly(const ClusterConfig& cluster, const Job& job, const absl::Status& failure,
                       const std::function<bool()>& give_up);

}  // namespace muster::membership
