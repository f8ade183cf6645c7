// An optimizer whose slots are on parameter servers. Here its slots are tensors without memory
// (at::kMeta), which only describe them. Update must not be called.
#pragma once

#include "common/optim/optimizer.h"

namespace muster {

// See MakeOptimizer.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeServedOptimizer(const Json& spec,
                                                               std::vector<at::Tensor> parameters,
                                                               std::vector<int> groups = {});

}  // namespace muster
