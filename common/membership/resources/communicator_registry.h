// Holds weak references to the communicators of a generation, which is a period of training with
// fixed members. The Member can therefore abort the communicators at any time, even while the
// training loop uses or destroys them. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/session/aborter.h"

namespace muster::membership {

class CommunicatorRegistry {
 public:
  using Replicas = std::vector<std::shared_ptr<collective::Communicator>>;

  // Registers the communicators `made`, and forgets the communicators of the previous call. The
  // training loop owns the communicators.
  void Register(const Replicas& made);
  // Aborts the registered communicators that still exist. Does not block: a thread of Aborter
  // (common/session/aborter.h) makes the calls, and keeps the communicators alive meanwhile.
  void Abort(const absl::Status& why);

 private:
  Aborter aborter_;
  absl::Mutex mu_;
  std::vector<std::weak_ptr<collective::Communicator>> registered_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::membership
