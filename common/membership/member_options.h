// Functions that each member calls at its start. A member is a task that takes part in training:
// the chief, a worker, or a ps task.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/membership/faulty_membership.h"
#include "common/membership/member.h"
#include "common/process/supervisor.h"
#include "common/process/task_setup.h"
#include "common/transport/listener/data_listener.h"

namespace muster::membership {

// Opens this process's port for data connections, and counts their bytes. `faulty` may be null.
// Blocks as DataPortOptions (common/process/data_port.h) does, and returns its errors. REQUIRES:
// setup.Start() has succeeded.
absl::StatusOr<std::unique_ptr<transport::DataListener>> OpenDataPort(
    const TaskSetup& setup, FaultyMember* faulty, const std::function<bool()>& give_up);

// Returns the options of the channel to the chief.
rpc::ChannelOptions ChannelToChief(const ClusterConfig& cluster);
// Returns options with the fields that do not depend on the role. The caller sets the other fields:
// data_address, num_replicas, devices, versions, form, on_verdict and spans. A process that hangs
// also writes its last line to the file `termination_log`. A member other than the chief reports a
// silent chief to `supervisor`, the process that starts tasks, which may end the chief's process
// and start a new one. REQUIRES: the cluster has a chief, and setup.Start() has succeeded.
// `supervisor` and `setup` outlive the Member.
MemberOptions MemberOptionsOf(const TaskSetup& setup, Supervisor* supervisor,
                              const std::string& termination_log);

// Called before a task other than the chief joins. Blocks while the chief's host refuses
// connections (common/membership/late_start.h). Returns true if the run in model_dir is finished.
// The task must not join in that case. The message of an error is the line that this process must
// print last.
absl::StatusOr<bool> FinishedWithoutChief(const TaskSetup& setup,
                                          const std::function<bool()>& give_up);

// Called by a process that fails before it has a Member. A process other than the chief reports the
// failure to the chief. If the chief cannot be reached, FailEarly retries for a limited time, or
// until `give_up` returns true. Returns an error whose message is the line that this process must
// print last.
absl::Status FailEarly(const TaskSetup& setup, const absl::Status& failure,
                       const std::function<bool()>& give_up);

}  // namespace muster::membership
