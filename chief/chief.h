// Starts the chief's half of a training process (common/train/chief_role.h). That half owns the
// model_dir, runs the cluster's coordinator, and publishes progress, summaries and the result.
#pragma once

#include "common/checkpoint/files/file_system.h"
#include "common/train/chief_role.h"

namespace muster::chief {

// Takes ownership of the model_dir, then listens on the chief's address. This function is a
// ChiefRoleFactory.
absl::StatusOr<std::unique_ptr<ChiefRole>> StartChief(const ChiefRoleOptions& options);
// Does the same as StartChief, but writes checkpoints through `files`. For tests. `files` must
// outlive the role.
absl::StatusOr<std::unique_ptr<ChiefRole>> StartChiefOn(checkpoint::FileSystem& files,
                                                        const ChiefRoleOptions& options);

}  // namespace muster::chief
