// Threads for what calls do that takes long: disks, and locks that others hold. gRPC answers all
// calls of a process on a few threads, and one that waits there keeps every call waiting.
#pragma once

#include <functional>
#include <limits>
#include <memory>

namespace muster::rpc {

class WorkerPool {
 public:
  static constexpr int kNoBound = std::numeric_limits<int>::max();  // the caller has one

  // `most`: that wait for a thread.
  explicit WorkerPool(int threads, int most = kNoBound);
  ~WorkerPool();  // when all that was taken is done
  // Thread-safe. Returns false if `work` is not taken: too many wait already, or no memory is left.
  // `work` must not throw.
  [[nodiscard]] bool Run(std::function<void()> work);

 private:
  struct Threads;
  const std::unique_ptr<Threads> threads_;
};

}  // namespace muster::rpc
