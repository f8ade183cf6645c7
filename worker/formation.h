// Makes the communicators (common/collective/communicator.h) of a member's replicas. A member is a
// process that trains. A replica is a copy of the model on one device of the member.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/collective/group/formation.h"
#include "common/job/job.h"
#include "common/transport/counted_stream.h"
#include "common/transport/listener/data_listener.h"

namespace muster::worker {

// Forms a group of the members in `spec`. Returns one communicator for each replica of this member.
// `replicas_per_rank` is the number of replicas of each member. The attempt ends with an error when
// `aborted` returns true.
using GroupFactory =
    std::function<absl::StatusOr<std::vector<std::unique_ptr<collective::Communicator>>>(
        const collective::GroupSpec& spec, const std::vector<int>& replicas_per_rank,
        const std::function<bool()>& aborted)>;

struct FormationOptions {
  transport::DataListener* listener = nullptr;  // Must outlive the result of FormationOver.
  std::vector<c10::Device> devices;
  CollectiveOptions collective;
  Duration timeout;  // The timeout of the communicators' operations.
  // Called with the error if the NCCL communicators cannot be made. The GroupFactory returns the
  // result of `judge`. If a device has failed, `judge` can return a final error, so that the caller
  // does not retry.
  std::function<absl::Status(const absl::Status&)> judge;
  std::shared_ptr<transport::TaskTraffic> traffic;  // Counts the bytes of shared memory and NCCL.
};

// Returns a GroupFactory that connects the members through the listener. CPU replicas communicate
// through shared memory and TCP, and CUDA replicas through NCCL. The GroupFactory blocks for at
// most spec.formation_timeout.
GroupFactory FormationOver(const FormationOptions& options);

}  // namespace muster::worker
