// Exchanges values among the replicas of one process. A replica is one device's copy of the model,
// with its own thread. Thread-safe.
#pragma once

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wait.h"
#include "muster/nested.h"
#include "muster/status.h"

namespace muster {

class LocalExchange {
 public:
  // `size` is the number of replicas. `timeout` is the maximum time that a call of Exchange waits.
  LocalExchange(int size, Duration timeout) : size_(size), timeout_(timeout), values_(size) {}
  // Called by every replica once in each round. Blocks until all replicas have made the call.
  // Returns the values of all replicas, indexed by replica.
  absl::StatusOr<std::vector<Nested>> Exchange(int replica, const Nested& value);
  // Makes all waiting calls and all later calls of Exchange return the error `why`.
  void Abort(absl::Status why);

 private:
  const int size_;
  const Duration timeout_;
  absl::Mutex mutex_;
  CondVar changed_;
  std::vector<Nested> values_ ABSL_GUARDED_BY(mutex_);
  std::vector<Nested> result_ ABSL_GUARDED_BY(mutex_);
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster
