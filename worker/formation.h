// Makes the communicators of a member's replicas. The backend depends on the devices of the
// replicas.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/collective/formation.h"
#include "common/job/job.h"
#include "common/transport/data_listener.h"

namespace muster::worker {

using GroupFactory =
    std::function<absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>>(
        const collective::GroupSpec& spec, const std::vector<int>& replicas_per_rank,
        const std::function<bool()>& aborted)>;

// Returns a function that forms a group over `listener`, which must outlive it. CPU replicas reduce
// over shared memory and TCP, and CUDA replicas with NCCL. The function blocks, for at most
// spec.formation_timeout. If the NCCL communicators cannot be made, the function passes the error
// to `judge` and returns the result. `judge` can return a final error, so that the caller does not
// retry with a device that has failed. `timeout` is the timeout of the communicators' operations.
GroupFactory FormationOver(transport::DataListener* listener, std::vector<c10::Device> devices,
                           const CollectiveOptions& options, Duration timeout,
                           std::function<absl::Status(const absl::Status&)> judge);

}  // namespace muster::worker
