// The leases of a LeaseClient (lease_client.h) whose examples are loaded, in the order of loading.
// A lease assigns examples to a worker. Not thread-safe: the LeaseClient's lock guards this object.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "common/data/queue_depth.h"
#include "worker/parameter_server/lease_client.h"

namespace muster::worker {

class LoadedLeases {
 public:
  // `ahead` is the number of leases that the LeaseClient loads while the worker computes another
  // lease. The object stores the number of its leases in `depth`, which may be null.
  LoadedLeases(std::shared_ptr<data::QueueDepth> depth, int ahead) : depth_(std::move(depth)) {
    depth_.SetCapacity(ahead);
  }
  bool empty() const { return leases_.empty(); }
  // Returns the id of the first lease if this lease may not start yet. Otherwise returns 0.
  int64_t waiting() const {
    const bool waits = !empty() && leases_.front().lease->training().wait();
    return waits ? leases_.front().lease->id() : 0;
  }
  // Returns null if this object does not contain the lease.
  LeasedWork* Find(int64_t lease) {
    for (LeasedWork& work : leases_)
      if (work.lease->id() == lease) return &work;
    return nullptr;
  }
  void Push(LeasedWork work) {
    leases_.push_back(std::move(work));
    Count();
  }
  // REQUIRES: !empty().
  LeasedWork Pop() {
    LeasedWork work = std::move(leases_.front());
    leases_.pop_front();
    Count();
    return work;
  }
  void Remove(int64_t lease) {
    std::erase_if(leases_, [lease](const LeasedWork& work) { return work.lease->id() == lease; });
    Count();
  }
  void Clear() {
    leases_.clear();
    Count();
  }

 private:
  void Count() { depth_.SetReady(std::ssize(leases_)); }

  std::deque<LeasedWork> leases_;
  data::QueuePart depth_;
};

}  // namespace muster::worker
