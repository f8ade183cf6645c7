// Where a task takes data connections: on the interface that the job names, else on the one of the
// way to the chief. Needs no LibTorch.
#pragma once

#include <functional>

#include "common/cluster/cluster_config.h"
#include "common/train/job.h"
#include "common/transport/data_listener.h"

namespace muster {

// Waits, up to timeouts.join, for the names that it needs to resolve; `give_up` is asked meanwhile.
// REQUIRES: a cluster with a chief.
absl::StatusOr<transport::ListenerOptions> DataPortOptions(const Job& job,
                                                           const ClusterConfig& cluster,
                                                           const std::function<bool()>& give_up);

}  // namespace muster
