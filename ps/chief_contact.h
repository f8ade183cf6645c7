// Tracks when the chief was last heard. The chief replaces a parameter server that it cannot reach,
// even if workers still reach the server. Updates that the server acknowledges after that would be
// lost. A server therefore acknowledges no push after too long a silence of the chief.
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
  // Await blocks after this silence of the chief. It must be shorter than the time after which the
  // chief regards a silent member as lost. Zero: Await never blocks.
  explicit ChiefContact(Duration silence) : silence_(silence) {}

  void OnContact() {
    absl::MutexLock lock(&mu_);
    last_contact_ = Clock::now();
    changed_.SignalAll();
  }
  // Blocks while the chief is silent for too long. Returns Superseded if `abort` is set because the
  // view has ended, and DeadlinePassed after `limit`.
  absl::Status Await(const transport::AbortSignal& abort, Duration limit);

 private:
  const Duration silence_;
  absl::Mutex mu_;
  CondVar changed_;
  MonotonicTime last_contact_ ABSL_GUARDED_BY(mu_) = Clock::now();
};

}  // namespace muster::ps
