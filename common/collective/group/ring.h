// The ring algorithm over data connections: a reduce-scatter, then an all-gather. Each rank
// receives one continuous stream of data from the previous rank of the ring, and sends one such
// stream to the next rank. A rank reduces the stream in pieces (chunks). Reducing, sending and
// receiving overlap. Internal.
#pragma once

#include <memory>
#include <vector>

#include "common/collective/engines/engine.h"
#include "common/collective/group/links.h"

namespace muster::collective {

class Ring {
 public:
  Ring(Links* links, bool spin) : links_(links), spin_(spin) {}

  // Runs `plan` among the ranks in `order`, and blocks until it is done. All these ranks call Run
  // with the same `order`. plan.parts[i] belongs to the rank order[i]. REQUIRES: this rank is in
  // `order`, and has links to its two neighbours in `order`.
  absl::Status Run(const std::vector<int>& order, const Plan& plan, const Signature& signature,
                   MonotonicTime deadline);

 private:
  Links* const links_;
  const bool spin_;
  std::vector<std::byte> incoming_;  // The chunk that is being received, before it is reduced.
  // In a reduce-scatter: partial sums for other ranks' parts, for which the caller has no memory.
  std::vector<std::byte> partial_;
};

// Runs `operation` among all ranks, in the order of Topology::ring.
absl::Status RunAroundAll(Ring& ring, const Links& links, const Operation& operation,
                          MonotonicTime deadline);

// Blocks until every rank in `order` has called RingBarrier. `signature` and `deadline` belong to
// the operation that needs the barrier.
absl::Status RingBarrier(Ring& ring, const std::vector<int>& order, const Signature& signature,
                         MonotonicTime deadline);

std::unique_ptr<Engine> MakeTcpEngine(std::unique_ptr<Links> links, bool spin);

}  // namespace muster::collective
