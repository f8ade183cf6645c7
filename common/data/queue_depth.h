// How many batches input pipelines have ready. A pipeline writes it under a lock that it holds
// anyway, and monitoring reads it without one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace muster::data {

// Sums over the pipelines of one dataset in this process. Thread-safe.
struct QueueDepth {
  std::atomic<int64_t> ready = 0;     // Batches that are loaded and not taken.
  std::atomic<int64_t> capacity = 0;  // Batches that may be loading or ready. 0: no queue.
};

// The part of one pipeline, which its destructor takes out of the sums. Not thread-safe.
class QueuePart {
 public:
  // `depth` may be null. Nothing is counted then.
  explicit QueuePart(std::shared_ptr<QueueDepth> depth) : depth_(std::move(depth)) {}
  QueuePart(const QueuePart&) = delete;
  QueuePart& operator=(const QueuePart&) = delete;
  ~QueuePart() {
    SetReady(0);
    SetCapacity(0);
  }
  void SetReady(int64_t batches) {
    if (depth_ == nullptr || batches == ready_) return;
    depth_->ready.fetch_add(batches - std::exchange(ready_, batches), std::memory_order_relaxed);
  }
  void AddReady(int64_t batches) { SetReady(ready_ + batches); }
  void SetCapacity(int64_t batches) {
    if (depth_ == nullptr || batches == capacity_) return;
    depth_->capacity.fetch_add(batches - std::exchange(capacity_, batches),
                               std::memory_order_relaxed);
  }

 private:
  const std::shared_ptr<QueueDepth> depth_;
  int64_t ready_ = 0, capacity_ = 0;
};

}  // namespace muster::data
