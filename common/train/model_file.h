// One safetensors file with a program's models, and with its optimizers' slots where they are
// wanted: tensors named as in a checkpoint.
#pragma once

#include <string>

#include "common/checkpoint/file_system.h"
#include "common/train/snapshot.h"

namespace muster {

// Appears whole, by a rename. An error names the path.
absl::Status WriteModelFile(checkpoint::FileSystem& files, const std::string& path,
                            SnapshotTaker& snapshots, const Replica& replica,
                            const LoopState& state, bool with_optimizer);
absl::Status WriteModelFile(checkpoint::FileSystem& files, const std::string& path,
                            const checkpoint::Snapshot& snapshot, bool with_optimizer);

}  // namespace muster
