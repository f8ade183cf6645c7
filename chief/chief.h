// The chief's half of a process (common/train/chief_role.h): the owner of the model_dir, the
// coordinator of the cluster, the publisher of progress, summaries and the result.
#pragma once

#include "common/checkpoint/file_system.h"
#include "common/train/chief_role.h"

namespace muster {

// Takes the model_dir, then listens on the chief's address. A ChiefRoleFactory.
absl::StatusOr<std::unique_ptr<ChiefRole>> StartChief(const ChiefRoleOptions& options);
// The same with checkpoints through another file system, which outlives it: a test's.
absl::StatusOr<std::unique_ptr<ChiefRole>> StartChiefOn(checkpoint::FileSystem& files,
                                                        const ChiefRoleOptions& options);

}  // namespace muster
