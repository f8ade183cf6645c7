// Writes a safetensors file with a program's models. The file may include the slots, the state that
// optimizers have for each parameter. `muster export` and callbacks write such files. `muster
// evaluate`, `muster predict`, and the job's "load" and "restore" read them.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/files/file_system.h"
#include "common/job/job.h"

namespace muster {

// Writes the models of `snapshot` to `path`. Also writes the slots if `with_optimizer` is true.
// Writes a temporary file and renames it, so that `path` is never an incomplete file. An error
// names the path.
absl::Status WriteModelFile(checkpoint::FileSystem& files, const std::string& path,
                            checkpoint::Snapshot snapshot, const Job& job, bool with_optimizer);

}  // namespace muster
