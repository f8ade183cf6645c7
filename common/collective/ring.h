// The ring over data connections: reduce-scatter, then all-gather, as one continuous stream in each
// direction. Reduction, sending and receiving overlap chunk by chunk. Internal.
#pragma once

#include <memory>
#include <vector>

#include "common/collective/engines/engine.h"
#include "common/collective/links.h"

namespace muster::collective {

class Ring {
 public:
  Ring(Links* links, bool spin) : links_(links), spin_(spin) {}

  // Executes `plan` among the ranks `order`. Each of them calls it with the same order, and
  // parts[i] belongs to order[i]. REQUIRES: this rank is in `order` and is linked with its
  // neighbours there.
  absl::Status Run(const std::vector<int>& order, const Plan& plan, const Signature& signature,
                   MonotonicTime deadline);

 private:
  Links* const links_;
  const bool spin_;
  std::vector<std::byte> incoming_;  // A chunk that waits for its reduction.
  std::vector<std::byte> partial_;   // Partial sums, where the caller's memory must not hold them.
};

// Executes `operation` among all ranks, along the ring of the topology.
absl::Status RunAroundAll(Ring& ring, const Links& links, const Operation& operation,
                          MonotonicTime deadline);

// Returns when every rank of `order` has called it. `signature` and `deadline` are those of the
// operation that needs the barrier.
absl::Status RingBarrier(Ring& ring, const std::vector<int>& order, const Signature& signature,
                         MonotonicTime deadline);

std::unique_ptr<Engine> MakeTcpEngine(std::unique_ptr<Links> links, bool spin);

}  // namespace muster::collective
