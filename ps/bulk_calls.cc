#include "ps/bulk_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/logging.h"

namespace muster {

BulkCalls::BulkCalls(Limits limits) : limits_(limits), thread_([this] { Run(); }) {}

BulkCalls::~BulkCalls() {
  {
    absl::MutexLock lock(&mu_);
    exiting_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void BulkCalls::Run() {
  pthread_setname_np(pthread_self(), "bulk-calls");
  absl::MutexLock lock(&mu_);
  while (!exiting_) {
    const MonotonicTime now = Clock::now();
    MonotonicTime next = MonotonicTime::max();
    for (Call* call : under_way_) {
      if (call->cancelled_) continue;
      if (now < call->until_) {
        next = std::min(next, call->until_);
        continue;
      }
      LogWarning("{} is cancelled: nothing passed for {:g} s", call->method_,
                 Seconds(now - call->since_));
      call->cancelled_ = true;
      call->context_->TryCancel();
    }
    changed_.WaitUntil(&mu_, next);
  }
}

// A cancelled call ends soon, but keeps its place until then.
bool BulkCalls::MakeRoomLocked(MonotonicTime now) {
  const auto standing = [](const Call* call) { return !call->cancelled_; };
  const auto count = std::count_if(under_way_.begin(), under_way_.end(), standing);
  if (count < limits_.most) return true;
  const auto oldest =
      std::min_element(under_way_.begin(), under_way_.end(), [](const Call* a, const Call* b) {
        return std::pair(a->cancelled_, a->since_) < std::pair(b->cancelled_, b->since_);
      });
  Call* call = *oldest;
  if (now - call->since_ < limits_.standstill) return false;
  LogWarning("{} is cancelled for another call: nothing passed for {:g} s", call->method_,
             Seconds(now - call->since_));
  call->cancelled_ = true;
  call->context_->TryCancel();
  return true;
}

BulkCalls::Call::Call(BulkCalls* calls, grpc::ServerContext* context, const char* method)
    : calls_(calls), context_(context), method_(method) {
  const MonotonicTime now = Clock::now();
  absl::MutexLock lock(&calls_->mu_);
  if (!calls_->MakeRoomLocked(now)) {
    admitted_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                             fmt::format("{}: {} calls that carry data are under way, and are the "
                                         "most",
                                         method, calls_->limits_.most));
    return;
  }
  since_ = now;
  until_ = now + calls_->limits_.silence;
  place_ = calls_->under_way_.insert(calls_->under_way_.end(), this);
  calls_->changed_.SignalAll();
}

BulkCalls::Call::~Call() {
  if (!admitted_.ok()) return;
  absl::MutexLock lock(&calls_->mu_);
  calls_->under_way_.erase(place_);
}

void BulkCalls::Call::Passed() {
  absl::MutexLock lock(&calls_->mu_);
  since_ = Clock::now();
  until_ = since_ + calls_->limits_.silence;
}

}  // namespace muster
