#include "common/rpc/server/bulk_calls.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"

namespace muster::rpc {

BulkCalls::BulkCalls(Limits limits, std::string ending)
    : limits_(limits), ending_(std::move(ending)), thread_([this] { Run(); }) {}

BulkCalls::~BulkCalls() {
  Stop();
  thread_.join();
}

void BulkCalls::Stop() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  for (Call* call : under_way_) Cancel(call);
  changed_.SignalAll();
  while (!under_way_.empty()) changed_.Wait(&mu_);  // Cancelled calls end soon.
}

// The pending reads and writes of the call then fail on a thread of gRPC, not on the calling
// thread.
void BulkCalls::Cancel(Call* call) {
  if (!std::exchange(call->over_, true)) call->context_->TryCancel();
}

void BulkCalls::Run() {
  pthread_setname_np(pthread_self(), "bulk-calls");
  absl::MutexLock lock(&mu_);
  while (!stopped_) {
    const MonotonicTime now = Clock::now();
    MonotonicTime next = MonotonicTime::max();
    for (Call* call : under_way_) {
      if (call->over_) continue;
      if (now < call->until_) {
        next = std::min(next, call->until_);
        continue;
      }
      LogWarning("cancelled {}: no data moved for {:g} s", call->method_,
                 Seconds(now - call->since_));
      Cancel(call);
    }
    changed_.WaitUntil(&mu_, next);
  }
}

// Returns whether a new call may start, and cancels a call for it if needed. Calls that are over do
// not count, although they stay in the list until their reactors are deleted.
bool BulkCalls::MakeRoomLocked(MonotonicTime now) {
  const auto counts = [](const Call* call) { return !call->over_; };
  const auto count = std::count_if(under_way_.begin(), under_way_.end(), counts);
  if (count < limits_.most) return true;
  Call* oldest =
      *std::min_element(under_way_.begin(), under_way_.end(), [](const Call* a, const Call* b) {
        return std::pair(a->over_, a->since_) < std::pair(b->over_, b->since_);
      });
  if (now - oldest->since_ < limits_.standstill) return false;
  LogWarning("cancelled {} in favor of another call: no data moved for {:g} s", oldest->method_,
             Seconds(now - oldest->since_));
  Cancel(oldest);
  return true;
}

grpc::Status BulkCalls::Call::Admit() {
  const MonotonicTime now = Clock::now();
  absl::MutexLock lock(&calls_->mu_);
  if (calls_->stopped_) return grpc::Status(grpc::StatusCode::UNAVAILABLE, calls_->ending_);
  for (Call* other : calls_->under_way_)
    if (!caller_.empty() && other->caller_ == caller_) Cancel(other);
  if (!calls_->MakeRoomLocked(now))
    return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                        fmt::format("{}: {} calls that carry data are under way, and are the most",
                                    method_, calls_->limits_.most));
  since_ = now;
  until_ = now + calls_->limits_.silence;
  place_ = calls_->under_way_.insert(calls_->under_way_.end(), this);
  admitted_ = true;
  calls_->changed_.SignalAll();
  return grpc::Status::OK;
}

BulkCalls::Call::~Call() {
  absl::MutexLock lock(&calls_->mu_);
  if (!admitted_) return;
  calls_->under_way_.erase(place_);
  calls_->changed_.SignalAll();
}

void BulkCalls::Call::Passed() {
  absl::MutexLock lock(&calls_->mu_);
  since_ = Clock::now();
  until_ = since_ + calls_->limits_.silence;
}

void BulkCalls::Call::Done() {
  absl::MutexLock lock(&calls_->mu_);
  over_ = true;
}

}  // namespace muster::rpc
