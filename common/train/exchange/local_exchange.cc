#include "common/train/exchange/local_exchange.h"

#include <fmt/format.h>

namespace muster {

absl::StatusOr<std::vector<Nested>> LocalExchange::Exchange(int replica, const Nested& value) {
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return status_;
  values_[replica] = value;
  const int64_t round = round_;
  if (++arrived_ == size_) {
    result_ = values_;
    arrived_ = 0;
    ++round_;
    changed_.SignalAll();
    return result_;
  }
  const MonotonicTime until = Clock::now() + timeout_;
  bool late = false;
  while (round_ == round && status_.ok()) {
    if (late)
      return DeadlinePassed(
          fmt::format("{} of {} replicas of this process came to local_results", arrived_, size_));
    late = changed_.WaitUntil(&mutex_, until);
  }
  if (round_ == round) return status_;
  return result_;
}

void LocalExchange::Abort(absl::Status why) {
  absl::MutexLock lock(&mutex_);
  if (status_.ok()) status_ = std::move(why);
  changed_.SignalAll();
}

}  // namespace muster
