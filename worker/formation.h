// How a member's replicas get their communicators: over its DataListener, by the devices it trains
// on.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/collective/formation.h"
#include "common/train/job.h"
#include "common/transport/data_listener.h"

namespace muster {

using Formation = std::function<absl::StatusOr<std::vector<std::unique_ptr<Communicator>>>(
    const GroupSpec& spec, const std::vector<int>& replicas_per_rank,
    const std::function<bool()>& aborted)>;

// The listener must outlive what is returned. CPU replicas reduce over shared memory and TCP, CUDA
// ones by NCCL; spec.formation_timeout bounds all of it. `judge` sees each failure first: one of
// this process's device is not to be tried again.
Formation FormationOver(transport::DataListener* listener, std::vector<c10::Device> devices,
                        const CollectiveOptions& options, Duration timeout,
                        std::function<absl::Status(const absl::Status&)> judge);

}  // namespace muster
