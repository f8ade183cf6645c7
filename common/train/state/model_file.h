// Writes a safetensors file with a program's models, and optionally with the slots of its
// optimizers. `muster export` and callbacks write such files. `muster evaluate`, `muster predict`,
// and the job's "load" and "restore" read them.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/files/file_system.h"
#include "common/job/job.h"

namespace muster {

// Writes the file under a temporary name and renames it, so that it is never incomplete. An error
// names the path.
absl::Status WriteModelFile(checkpoint::FileSystem& files, const std::string& path,
                            checkpoint::Snapshot snapshot, const Job& job, bool with_optimizer);

}  // namespace muster
