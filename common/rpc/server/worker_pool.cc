#include "common/rpc/server/worker_pool.h"

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
  asio::thread_pool pool;  // The last member, because its threads use the others.
};

WorkerPool::WorkerPool(int threads, int most)
    : threads_(std::make_unique<Threads>(threads, most)) {}

// Joins first, because the pool's destructor drops waiting work, and a call would get no reply.
WorkerPool::~WorkerPool() { threads_->pool.join(); }

bool WorkerPool::Run(std::function<void()> work) {
  std::atomic<int>& waiting = threads_->waiting;
  if (waiting.fetch_add(1) >= threads_->most) {
    --waiting;
    return false;
  }
  try {
    asio::post(threads_->pool, [&waiting, work = std::move(work)] {
      // Decremented before `work`: a caller that has its reply may make the next call at once.
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
