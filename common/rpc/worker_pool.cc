#include "common/rpc/worker_pool.h"

#include <asio/post.hpp>
#include <asio/thread_pool.hpp>
#include <atomic>
#include <new>
#include <utility>

namespace muster::rpc {

struct WorkerPool::Threads {
  Threads(int threads, int most) : most(most), pool(static_cast<size_t>(threads)) {}

  const int most;
  std::atomic<int> waiting = 0;
  asio::thread_pool pool;  // last: what it runs uses the rest
};

WorkerPool::WorkerPool(int threads, int most)
    : threads_(std::make_unique<Threads>(threads, most)) {}

// The pool's own destructor forgets what waits, and with it a call that would never be answered.
WorkerPool::~WorkerPool() { threads_->pool.join(); }

bool WorkerPool::Run(std::function<void()> work) {
  std::atomic<int>& waiting = threads_->waiting;
  if (waiting.fetch_add(1) >= threads_->most) {
    --waiting;
    return false;
  }
  try {
    asio::post(threads_->pool, [&waiting, work = std::move(work)] {
      // Before it: whoever has its answer may make the next call.
      --waiting;
      work();
    });
  } catch (const std::bad_alloc&) {
    --waiting;
    return false;
  }
  return true;
}

}  // namespace muster::rpc
