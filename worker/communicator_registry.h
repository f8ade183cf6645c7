// The communicators of a generation: the training loop uses and drops them, and the Member may have
// to abort them meanwhile. All methods may be called from any thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/aborter.h"

namespace muster {

class CommunicatorRegistry {
 public:
  using Replicas = std::vector<std::unique_ptr<Communicator>>;

  // Knows these from now on, and no others. Returns the loop's halves of them.
  Replicas Hold(Replicas made);
  // Those that the loop still has, on a thread of its own; returns at once.
  void Abort(const absl::Status& why);

 private:
  Aborter aborter_;
  absl::Mutex mu_;
  std::vector<std::weak_ptr<Communicator>> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
