// An optimizer whose slots are on parameter servers: here they are tensors without memory
// (at::kMeta), which say what there is. Update must not be called.
#pragma once

#include "common/train/optimizer.h"

namespace muster {

// As MakeOptimizer.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeServedOptimizer(const Json& spec,
                                                               std::vector<at::Tensor> parameters,
                                                               std::vector<int> groups = {});

}  // namespace muster
