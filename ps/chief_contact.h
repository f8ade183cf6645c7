// ChiefContact tracks when the last message of the chief arrived at this parameter server.
//
// The chief replaces a server that it cannot reach, even if workers still reach the server. If a
// server acknowledged a push after the chief has replaced the server, the push would be lost. If
// the last message of the chief is too old, a server therefore acknowledges no pushes.
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
  // Await blocks while the last message of the chief is at least `silence` old. `silence` must be
  // shorter than the time after which the chief treats a silent server as lost. Zero: Await never
  // blocks.
  explicit ChiefContact(Duration silence) : silence_(silence) {}

  void OnContact() {
    absl::MutexLock lock(&mu_);
    last_contact_ = Clock::now();
    changed_.SignalAll();
  }
  // Blocks until the last message of the chief is less than `silence` old, and then returns OK.
  // Returns DeadlinePassed after `limit`, and Superseded if `abort` is set. The owner sets `abort`
  // when the current view (see ps/shard_host.h) ends.
  absl::Status Await(const transport::AbortSignal& abort, Duration limit);

 private:
  const Duration silence_;
  absl::Mutex mu_;
  CondVar changed_;
  MonotonicTime last_contact_ ABSL_GUARDED_BY(mu_) = Clock::now();
};

}  // namespace muster::ps
