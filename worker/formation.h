// Makes the communicators of a member's replicas. The backend depends on the devices of the
// replicas.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/collective/formation.h"
#include "common/job/job.h"
#include "common/transport/counted_stream.h"
#include "common/transport/data_listener.h"

namespace muster::worker {

using GroupFactory =
    std::function<absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>>(
        const collective::GroupSpec& spec, const std::vector<int>& replicas_per_rank,
        const std::function<bool()>& aborted)>;

struct FormationOptions {
  transport::DataListener* listener = nullptr;  // Must outlive the function.
  std::vector<c10::Device> devices;
  CollectiveOptions collective;
  Duration timeout;  // Of the communicators' operations.
  // Called with the error if the NCCL communicators cannot be made. It can return a final error, so
  // that the caller does not retry with a device that has failed.
  std::function<absl::Status(const absl::Status&)> judge;
  std::shared_ptr<transport::TaskTraffic> traffic;  // Counts shared memory and NCCL.
};

// Returns a function that forms a group over the listener. CPU replicas reduce over shared memory
// and TCP, and CUDA replicas with NCCL. The function blocks, for at most spec.formation_timeout.
GroupFactory FormationOver(const FormationOptions& options);

}  // namespace muster::worker
