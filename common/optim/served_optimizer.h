// The optimizer of a replica whose parameters are updated by parameter servers, which hold the
// slots. Its slot tensors have no memory (at::kMeta) and only describe the shapes and types. Update
// must not be called.
#pragma once

#include "common/optim/optimizer.h"

namespace muster {

// See MakeOptimizer.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeServedOptimizer(const Json& spec,
                                                               std::vector<at::Tensor> parameters,
                                                               std::vector<int> groups = {});

}  // namespace muster
