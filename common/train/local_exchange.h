// Values that the replicas of one process show each other. Wakes everybody when one of them gives
// up.
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
  LocalExchange(int size, Duration timeout) : size_(size), timeout_(timeout), values_(size) {}
  // Blocks until every replica has put its value of this round.
  absl::StatusOr<std::vector<Nested>> Exchange(int replica, const Nested& value);
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
