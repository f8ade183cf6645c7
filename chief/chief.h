// The chief's process has two halves. StartChief starts one half, the ChiefRole
// (common/train/chief_role.h). The ChiefRole owns the model_dir, runs the cluster's coordinator,
// and publishes progress, summaries and the result. The other half trains.
#pragma once

#include "common/checkpoint/files/file_system.h"
#include "common/train/chief_role.h"

namespace muster::chief {

// Takes ownership of the model_dir and listens on the chief's address. This function is a
// ChiefRoleFactory.
absl::StatusOr<std::unique_ptr<ChiefRole>> StartChief(const ChiefRoleOptions& options);
// For tests: does the same as StartChief, but writes checkpoints through `files`. `files` must
// outlive the returned role.
absl::StatusOr<std::unique_ptr<ChiefRole>> StartChiefOn(checkpoint::FileSystem& files,
                                                        const ChiefRoleOptions& options);

}  // namespace muster::chief
