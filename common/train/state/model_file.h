// A safetensors file with a program's models, and optionally its optimizers' slots. `muster export`
// writes it. The commands evaluate and predict, and the job's "load" and "restore", read it.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/files/file_system.h"
#include "common/job/job.h"

namespace muster {

// Writes the file atomically, by a rename. An error names the path.
absl::Status WriteModelFile(checkpoint::FileSystem& files, const std::string& path,
                            checkpoint::Snapshot snapshot, const Job& job, bool with_optimizer);

}  // namespace muster
