// The number of batches that input pipelines have ready. Monitoring reads this number without a
// lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace muster::data {

// Sums over the pipelines of one dataset in this process. Thread-safe.
struct QueueDepth {
  // The number of batches that are loaded but not yet taken by a replica.
  std::atomic<int64_t> ready = 0;
  // The largest possible number of batches that are loading or ready. 0: the pipelines have no
  // queue.
  std::atomic<int64_t> capacity = 0;
};

// The contribution of one pipeline to the sums of a QueueDepth. The destructor subtracts the
// contribution. Not thread-safe.
class QueuePart {
 public:
  // If `depth` is null, nothing is counted.
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
