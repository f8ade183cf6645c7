// The optimizer of a replica in a parameter-server job. The parameter servers hold the slots (the
// optimizer's state, such as momentum) and make the updates. The slot tensors of this optimizer are
// on the device "meta": they have shapes and types, but no memory. Update must not be called.
#pragma once

#include "common/optim/optimizer.h"

namespace muster {

// The arguments are those of MakeOptimizer.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeServedOptimizer(const Json& spec,
                                                               std::vector<at::Tensor> parameters,
                                                               std::vector<int> groups = {});

}  // namespace muster
