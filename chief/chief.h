// The chief's half of a process (common/train/chief_role.h): the owner of the model_dir, the
// coordinator of the cluster, the publisher of progress, summaries and the result.
#pragma once

#include "common/train/chief_role.h"

namespace muster {

// Takes the model_dir, then listens on the chief's address. A ChiefRoleFactory.
absl::StatusOr<std::unique_ptr<ChiefRole>> StartChief(const ChiefRoleOptions& options);

}  // namespace muster
