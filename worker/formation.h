// Makes the communicators of a member's replicas over its DataListener, depending on the devices it
// trains on.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/collective/formation.h"
#include "common/job/job.h"
#include "common/transport/data_listener.h"

namespace muster {

using Formation = std::function<absl::StatusOr<std::vector<std::unique_ptr<Communicator>>>(
    const GroupSpec& spec, const std::vector<int>& replicas_per_rank,
    const std::function<bool()>& aborted)>;

// The listener must outlive the result. CPU replicas reduce over shared memory and TCP, CUDA
// replicas with NCCL. spec.formation_timeout bounds the whole formation. `judge` sees each failure
// first, because a failure of this process's device must not be retried.
Formation FormationOver(transport::DataListener* listener, std::vector<c10::Device> devices,
                        const CollectiveOptions& options, Duration timeout,
                        std::function<absl::Status(const absl::Status&)> judge);

}  // namespace muster
