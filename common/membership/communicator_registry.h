// The communicators of a generation. The training loop uses and drops them; the Member may have to
// abort them meanwhile. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/session/aborter.h"

namespace muster {

class CommunicatorRegistry {
 public:
  using Replicas = std::vector<std::unique_ptr<Communicator>>;

  // Registers these communicators in place of earlier ones. Returns the loop's handles to them.
  Replicas Hold(Replicas made);
  // Aborts the communicators that the loop still holds, on another thread. Does not block.
  void Abort(const absl::Status& why);

 private:
  Aborter aborter_;
  absl::Mutex mu_;
  std::vector<std::weak_ptr<Communicator>> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace muster
