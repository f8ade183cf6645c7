// Whether the chief still counts on this process. A parameter server that the chief does not reach
// is replaced, though workers may reach it: what it acknowledged from then on would be lost. So it
// acknowledges nothing while it has not heard from the chief for too long.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/wait.h"
#include "common/transport/wait.h"
#include "muster/status.h"

namespace muster::ps {

// All methods may be called from any thread.
class ChiefContact {
 public:
  // Silence of the chief after which pushes wait, shorter than that after which the chief gives a
  // member up; zero: they never do.
  explicit ChiefContact(Duration silence) : silence_(silence) {}

  void Heard() {
    absl::MutexLock lock(&mu_);
    heard_ = Clock::now();
    changed_.SignalAll();
  }
  // Until the chief is heard again. Superseded where the view ends meanwhile, DeadlinePassed after
  // `limit`.
  absl::Status Await(const transport::AbortSignal& abort, Duration limit);

 private:
  const Duration silence_;
  absl::Mutex mu_;
  CondVar changed_;
  MonotonicTime heard_ ABSL_GUARDED_BY(mu_) = Clock::now();
};

}  // namespace muster::ps
