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
  using Replicas = std::vector<std::unique_ptr<collective::Communicator>>;

  // Registers the communicators `made`, and forgets the communicators of the previous call. Returns
  // handles for the training loop. A communicator lives as long as its handle.
  Replicas Register(Replicas made);
  // Aborts the communicators whose handles still exist. Does not block: a thread of Aborter
  // (common/session/aborter.h) makes the calls.
  void Abort(const absl::Status& why);

 private:
  Aborter aborter_;
  absl::Mutex mu_;
  std::vector<std::weak_ptr<collective::Communicator>> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::membership
