// The chief's half of a process (common/train/chief_role.h). It owns the model_dir, runs the
// cluster's coordinator, and publishes progress, summaries and the result.
#pragma once

#include "common/checkpoint/files/file_system.h"
#include "common/train/chief_role.h"

namespace muster {

// Takes ownership of the model_dir, then listens on the chief's address. A ChiefRoleFactory.
absl::StatusOr<std::unique_ptr<ChiefRole>> StartChief(const ChiefRoleOptions& options);
// As StartChief, but writes checkpoints through `files`, which outlives the role. For tests.
absl::StatusOr<std::unique_ptr<ChiefRole>> StartChiefOn(checkpoint::FileSystem& files,
                                                        const ChiefRoleOptions& options);

}  // namespace muster
