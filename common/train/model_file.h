// One safetensors file with a program's models, and with its optimizers' slots where they are
// wanted: what `muster export` writes, and evaluate, predict, load and restore read.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/file_system.h"
#include "common/train/job.h"

namespace muster {

// Appears whole, by a rename. An error names the path.
absl::Status WriteModelFile(checkpoint::FileSystem& files, const std::string& path,
                            checkpoint::Snapshot snapshot, const Job& job, bool with_optimizer);

}  // namespace muster
