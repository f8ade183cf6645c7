#include "common/membership/resources/communicator_registry.h"

#include <utility>

#include "common/membership/resources/held_communicator.h"

namespace muster::membership {

CommunicatorRegistry::Replicas CommunicatorRegistry::Register(Replicas made) {
  Replicas handed_out;
  absl::MutexLock lock(&mu_);
  held_.clear();
  for (auto& communicator : made) {
    std::shared_ptr<collective::Communicator> shared = std::move(communicator);
    held_.push_back(shared);
    handed_out.push_back(std::make_unique<HeldCommunicator>(std::move(shared)));
  }
  return handed_out;
}

void CommunicatorRegistry::Abort(const absl::Status& why) {
  std::vector<std::shared_ptr<collective::Communicator>> doomed;
  absl::MutexLock lock(&mu_);
  for (const auto& weak : held_)
    if (auto communicator = weak.lock()) doomed.push_back(std::move(communicator));
  held_.clear();
  if (!doomed.empty()) aborter_.Abort(std::move(doomed), why);
}

}  // namespace muster::membership
