// Tracks whether the chief still reaches this process. The chief replaces a parameter server that
// it cannot reach, even if workers can reach it. Updates acknowledged after that would be lost. So
// the server acknowledges nothing while it has not heard from the chief for too long.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/wait.h"
#include "common/transport/wait.h"
#include "muster/status.h"

namespace muster::ps {

// Thread-safe.
class ChiefContact {
 public:
  // `silence`: pushes wait after this silence of the chief. It is shorter than the silence after
  // which the chief gives a member up. Zero: pushes never wait.
  explicit ChiefContact(Duration silence) : silence_(silence) {}

  void Heard() {
    absl::MutexLock lock(&mu_);
    heard_ = Clock::now();
    changed_.SignalAll();
  }
  // Blocks until the chief is heard again. Returns Superseded if the view ends meanwhile, and
  // DeadlinePassed after `limit`.
  absl::Status Await(const transport::AbortSignal& abort, Duration limit);

 private:
  const Duration silence_;
  absl::Mutex mu_;
  CondVar changed_;
  MonotonicTime heard_ ABSL_GUARDED_BY(mu_) = Clock::now();
};

}  // namespace muster::ps
