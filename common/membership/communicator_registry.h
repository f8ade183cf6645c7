// Holds the communicators of a generation, so that the Member can abort them while the training
// loop uses or destroys them. Thread-safe.
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

  // Registers these communicators and forgets earlier ones. Returns handles for the loop.
  Replicas Register(Replicas made);
  // Aborts the communicators whose handles still exist. Another thread does it, so this call does
  // not block.
  void Abort(const absl::Status& why);

 private:
  Aborter aborter_;
  absl::Mutex mu_;
  std::vector<std::weak_ptr<collective::Communicator>> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster::membership
