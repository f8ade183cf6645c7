#include "common/membership/resources/communicator_registry.h"

#include <utility>

namespace muster::membership {

void CommunicatorRegistry::Register(const Replicas& made) {
  absl::MutexLock lock(&mu_);
  registered_.assign(made.begin(), made.end());
}

void CommunicatorRegistry::Abort(const absl::Status& why) {
  Replicas doomed;
  absl::MutexLock lock(&mu_);
  for (const auto& weak : registered_)
    if (auto communicator = weak.lock()) doomed.push_back(std::move(communicator));
  registered_.clear();
  if (!doomed.empty()) aborter_.Abort(std::move(doomed), why);
}

}  // namespace muster::membership
