// A thread pool for the parts of RPC handlers that may block, such as disk access and waiting for
// locks. gRPC runs the handlers of all calls on a few threads. A handler that blocks such a thread
// delays all other calls.
#pragma once

#include <functional>
#include <limits>
#include <memory>

namespace muster::rpc {

class WorkerPool {
 public:
  // A value of `most` for callers that have their own limit on waiting work items.
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
