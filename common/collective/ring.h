// The ring over data connections: reduce-scatter, then all-gather, as one continuous stream in
// each direction, so that reduction, sending and receiving overlap down to the chunk. Internal.
#pragma once

#include <memory>
#include <vector>

#include "common/collective/engine.h"
#include "common/collective/mesh.h"

namespace muster::collective {

class Ring {
 public:
  Ring(Mesh* mesh, bool spin) : mesh_(mesh), spin_(spin) {}

  // Carries `plan` out among the ranks `order`, each of which calls it with the same order;
  // parts[i] belongs to order[i]. REQUIRES: this rank is in `order`.
  absl::Status Run(const std::vector<int>& order, const Plan& plan, const Signature& signature,
                   MonotonicTime deadline);

 private:
  Mesh* const mesh_;
  const bool spin_;
  std::vector<std::byte> incoming_;  // a chunk to be reduced
  std::vector<std::byte> partial_;   // sums on their way, where the caller's memory is not ours
};

// Signature and deadline of an operation that returns when every rank has called it.
absl::Status RingBarrier(Ring& ring, const std::vector<int>& order, const Signature& signature,
                         MonotonicTime deadline);

std::unique_ptr<Engine> MakeTcpEngine(std::unique_ptr<Mesh> mesh, bool spin);

}  // namespace muster::collective
