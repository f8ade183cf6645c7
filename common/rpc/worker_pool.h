// A thread pool for parts of RPC handlers that may block: disk access, and locks that other threads
// hold. gRPC runs the handlers of all calls on a few threads, so a handler that blocks there delays
// all other calls.
#pragma once

#include <functional>
#include <limits>
#include <memory>

namespace muster::rpc {

class WorkerPool {
 public:
  // For callers that limit the waiting work themselves.
  static constexpr int kNoBound = std::numeric_limits<int>::max();

  // `most` is the maximum number of work items that wait for a thread.
  explicit WorkerPool(int threads, int most = kNoBound);
  ~WorkerPool();  // Blocks until all accepted work is done.
  // Runs `work` on a thread of the pool. Returns false and drops `work` if too many items wait or
  // no memory is left. `work` must not throw. Thread-safe.
  [[nodiscard]] bool Run(std::function<void()> work);

 private:
  struct Threads;
  const std::unique_ptr<Threads> threads_;
};

}  // namespace muster::rpc
