// The ring over data connections: reduce-scatter, then all-gather, as one continuous stream in
// each direction, so that reduction, sending and receiving overlap down to the chunk. Internal.
#pragma once

#include <memory>
#include <vector>

#include "common/collective/engine.h"
#include "common/collective/links.h"

namespace muster::collective {

class Ring {
 public:
  Ring(Links* links, bool spin) : links_(links), spin_(spin) {}

  // Carries `plan` out among the ranks `order`, each of which calls it with the same order;
  // parts[i] belongs to order[i]. REQUIRES: this rank is in `order`, and its neighbours there are
  // linked with it.
  absl::Status Run(const std::vector<int>& order, const Plan& plan, const Signature& signature,
                   MonotonicTime deadline);

 private:
  Links* const links_;
  const bool spin_;
  std::vector<std::byte> incoming_;  // a chunk to be reduced
  std::vector<std::byte> partial_;   // sums on their way, where the caller's memory is not ours
};

// `operation` among all ranks, along the ring of the topology.
absl::Status RunAroundAll(Ring& ring, const Links& links, const Operation& operation,
                          MonotonicTime deadline);

// Signature and deadline of an operation that returns when every rank has called it.
absl::Status RingBarrier(Ring& ring, const std::vector<int>& order, const Signature& signature,
                         MonotonicTime deadline);

std::unique_ptr<Engine> MakeTcpEngine(std::unique_ptr<Links> links, bool spin);

}  // namespace muster::collective
